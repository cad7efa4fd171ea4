// Validates a document from standard input with a public validator and prints the result as JSON.
//
//   node validate.mjs openapi|jsonld
import { Validator } from "@seriousme/openapi-schema-validator";
import jsonld from "jsonld";
import { readFileSync } from "node:fs";

const document = JSON.parse(readFileSync(0, "utf8"));
const validators = {
  async openapi() {
    const validator = new Validator();
    const { valid, errors } = await validator.validate(document);
    if (valid) validator.resolveRefs();
    return { valid, version: validator.version, errors };
  },
  // Documents must not need remote contexts, so nothing is fetched.
  async jsonld() {
    const documentLoader = (url) => {
      throw new Error(`the document needs ${url}`);
    };
    return jsonld.expand(document, { documentLoader });
  },
};
console.log(JSON.stringify(await validators[process.argv[2]]()));
