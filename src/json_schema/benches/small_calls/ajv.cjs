// Reads [schema, text, verdict] for each case, and writes [nanoseconds whole, nanoseconds check] for each.
const Ajv = require('ajv/dist/2020').default
const addFormats = require('ajv-formats').default
const { performance } = require('node:perf_hooks')

const cases = JSON.parse(require('node:fs').readFileSync(0, 'utf8'))
const ROUNDS = 41
const CHECKS = 4000

function median(run, verdict) {
  const times = []
  for (let round = 0; round < ROUNDS; round++) {
    const started = performance.now()
    for (let check = 0; check < CHECKS; check++) {
      if (run() !== verdict) throw new Error('another verdict')
    }
    times.push(((performance.now() - started) * 1e6) / CHECKS)
  }
  return times.sort((a, b) => a - b)[ROUNDS >> 1]
}

const rows = cases.map(([schema, text, verdict]) => {
  const validate = addFormats(new Ajv()).compile(schema)
  const value = JSON.parse(text)
  const bytes = Buffer.from(text)
  return [
    median(() => validate(JSON.parse(bytes.toString())), verdict),
    median(() => validate(value), verdict),
  ]
})
console.log(JSON.stringify(rows))
