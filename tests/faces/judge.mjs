// Reads one document from standard input and says what a public validator makes of it.
import { Validator } from "@seriousme/openapi-schema-validator";
import jsonld from "jsonld";
import { readFileSync } from "node:fs";

const document = JSON.parse(readFileSync(0, "utf8"));
const judges = {
  async openapi() {
    const validator = new Validator();
    const { valid, errors } = await validator.validate(document);
    if (valid) validator.resolveRefs();
    return { valid, version: validator.version, errors };
  },
  // Whatever would have to be fetched is refused.
  async jsonld() {
    const documentLoader = (url) => {
      throw new Error(`${url} is needed`);
    };
    return jsonld.expand(document, { documentLoader });
  },
};
console.log(JSON.stringify(await judges[process.argv[2]]()));
