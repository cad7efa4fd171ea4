// Validates the custom resources in a file, a JSON array, by the models of their kinds: `node validate.mjs FILE`.
import { readFileSync } from "node:fs";
import { HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";

const models = { HTTPRoute, PodMonitor, PrometheusRule, ServiceMonitor };
const objects = JSON.parse(readFileSync(process.argv[2], "utf8"));
const kinds = new Set(objects.map((object) => object.kind));
for (const kind of Object.keys(models)) {
  if (!kinds.has(kind)) throw new Error(`no value file renders a ${kind}`);
}
for (const object of objects) {
  const model = models[object.kind];
  if (model.apiVersion !== object.apiVersion) throw new Error(`${object.kind} has the version ${object.apiVersion}`);
  new model(object).validate();
}
console.log(`${objects.length} valid`);
