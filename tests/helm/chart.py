"""Tests of helm/gatepost. Each test is a function whose name is its command:

    chart.py TEST --helm PROGRAM --gatepost PROGRAM

It needs the packages of requirements.txt, openssl and promtool, and no cluster.
"""
import argparse
import base64
import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import kubernetes_validate
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests"))
from metric_queries import TARGET_LABELS, Metrics, Prometheus, SyntheticPage, is_filter, labels_on_page, queries_of_dashboard, queries_of_page, recording_rules, selector_text, table_rows
from promql import groupings, metrics_of, selectors
from script_support import Agent, eventually, free_port, run

CHART = REPOSITORY / "helm/gatepost"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
KUBERNETES_VERSIONS = ["1.27", "1.33", "1.37"]
# Kinds of custom resources, which kubernetes-validate does not know.
CUSTOM_KINDS = {"HTTPRoute", "ServiceMonitor", "PodMonitor", "PrometheusRule"}
# Whose pods, where a test has several, may have limits of their own.
MINIMAL = {"image": {"repository": "registry.example.com/gatepost"}, "state": {"perReplica": True}, "documents": {"a": {"id": "a", "name": "A", "endpoint": "https://a.example.com/"}}}

options = None
TESTS = {}


def test(function):
    TESTS[function.__name__] = function
    return function


def merged(base, changes):
    """`base` with `changes`: maps are merged, other values replaced."""
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if nested else value
    return result


def write_values(values):
    if isinstance(values, Path):
        return values
    text = json.dumps(values)
    path = options.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    path.write_text(text)
    return path


def template(values, *arguments, ok=True, release="gate"):
    return run(options.helm, "template", release, CHART, "--namespace", "agents", "--values", write_values(values), *arguments, ok=ok)


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice, as the API server does."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {keys}, {node.start_mark}"
        return super().construct_mapping(node, deep)


def render(values, *arguments, release="gate"):
    """The rendered objects by kind and name."""
    text = template(values, *arguments, release=release).stdout
    objects = [item for item in yaml.load_all(text, StrictLoader) if item]
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    assert len(by_name) == len(objects), "two objects have one kind and name"
    return by_name


def of_kind(objects, kind):
    return [item for (item_kind, _), item in objects.items() if item_kind == kind]


def one(objects, kind):
    (item,) = of_kind(objects, kind)
    return item


def pod_spec(objects):
    return one(objects, "Deployment")["spec"]["template"]["spec"]


def gateway_container(objects):
    (container,) = [container for container in pod_spec(objects)["containers"] if container["name"] == "gatepost"]
    return container


def config_of(objects):
    (text,) = [item["data"]["gatepost.yaml"] for item in of_kind(objects, "ConfigMap") if "gatepost.yaml" in item.get("data") or {}]
    return json.loads(text)


class Pod:
    """What the kubelet makes of the rendered volumes, below a folder in place of the root: each volume is a folder of
    links into `..data`, a link to a folder with a date, which one rename replaces."""

    def __init__(self, objects, root):
        self.objects, self.root, self.version = objects, root, 0
        self.state = self.path(self.mount("state"))
        self.state.mkdir(parents=True)
        self.update(objects)

    def mount(self, volume):
        (mount,) = [mount for mount in gateway_container(self.objects)["volumeMounts"] if mount["name"] == volume]
        return mount["mountPath"]

    def path(self, path):
        return self.root / path.lstrip("/")

    def update(self, objects):
        self.objects, self.version = objects, self.version + 1
        config, agents = {}, {}
        for volume in pod_spec(objects)["volumes"]:
            if volume["name"] == "config":
                for source in volume["projected"]["sources"]:
                    config |= self.files(source)
            if volume["name"] == "agents":
                agents = dict(objects["ConfigMap", volume["configMap"]["name"]].get("data") or {})
        text = config["gatepost.yaml"]
        # The paths of the pod, and no others, lie below the folder.
        for path in (self.mount("agents"), self.mount("state")):
            text = text.replace(path, str(self.path(path)))
        config["gatepost.yaml"] = text
        self.write(self.mount("config"), config, 0o440)
        self.write(self.mount("agents"), agents, 0o644)

    def files(self, source):
        if "configMap" in source and ("ConfigMap", source["configMap"]["name"]) in self.objects:
            data = self.objects["ConfigMap", source["configMap"]["name"]]["data"]
            return {item["path"]: data[item["key"]] for item in source["configMap"]["items"]}
        (reference,) = source.values()
        return {item["path"]: provided_file(item["path"]) for item in reference["items"]}

    def write(self, mount, files, mode):
        folder = self.path(mount)
        version = folder / f"..2026_11_23_{self.version}"
        version.mkdir(parents=True)
        for name, text in files.items():
            path = version / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(mode)
        (folder / "..data_tmp").symlink_to(version.name)
        previous = (folder / "..data").resolve() if (folder / "..data").exists() else None
        (folder / "..data_tmp").rename(folder / "..data")
        for name in {name.split("/")[0] for name in files}:
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(f"..data/{name}")
        for path in folder.iterdir():
            if path.is_symlink() and not path.exists():
                path.unlink()
        if previous:
            shutil.rmtree(previous)

    def config_file(self):
        return self.path(self.mount("config")) / "gatepost.yaml"

    def environment(self):
        provided = {"DATABASE_URL": "postgres://gatepost:not-a-password@127.0.0.1:1/gatepost"}
        names = [entry["name"] for entry in gateway_container(self.objects).get("env", [])]
        return {"PATH": os.environ["PATH"]} | {name: provided[name] for name in names}


def provided_file(path):
    """A file of a Secret that an operator provides."""
    folder = options.folder / "provided"
    if not folder.exists():
        folder.mkdir()
        key = run(options.gatepost, "key", "new", "--file", folder / "keys.jsonl", "--caller", "team-a").stdout
        (folder / "key").write_text(key.strip())
        for name, subject in (("server", "agents.example.com"), ("ca", "authority")):
            run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", f"/CN={subject}", "-addext", f"subjectAltName=DNS:{subject}", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")
    names = {"keys.jsonl": "keys.jsonl", "tls/server.pem": "server.pem", "tls/server.key": "server.key", "tls/clients.pem": "ca.pem", "tls/database.pem": "ca.pem", "state/ca.pem": "ca.pem"}
    secrets = {"state/url": "postgres://gatepost:not-a-password@127.0.0.1:1/gatepost", "state/password": "not-a-password", "state/sentinel-password": "not-a-password"}
    return secrets.get(path) or (folder / names[path]).read_text()


@test
def derived_files_are_current():
    run(REPOSITORY / "helm/update", "--check")


@test
def ten_value_files_pass_the_linter():
    assert len(VALUES) >= 10, VALUES
    for values in VALUES:
        run(options.helm, "lint", "--strict", "--quiet", CHART, "--values", values)


def expect_valid_objects(objects, what, versions):
    for item in objects.values():
        if item["kind"] in CUSTOM_KINDS:
            continue
        for version in versions:
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except kubernetes_validate.ValidationError as why:
                raise AssertionError(f"{what}, {item['kind']} {item['metadata']['name']}, {version}: {why}") from why


@test
def every_object_is_valid_in_three_versions_of_kubernetes():
    for values in VALUES:
        expect_valid_objects(render(values), values.name, KUBERNETES_VERSIONS)


@test
def texts_that_yaml_reads_as_something_else_stay_texts():
    odd = {
        "nameOverride": "on",
        "fullnameOverride": "null",
        "namespaceOverride": "123",
        "priorityClassName": "1e3",
        "commonLabels": {"team": "1", "app.kubernetes.io/name": "another"},
        "podLabels": {"team": "no", "app.kubernetes.io/instance": "another"},
        "service": {"type": "LoadBalancer", "labels": {"team": "~"}, "loadBalancerClass": "007", "appProtocol": "no"},
        "serviceAccount": {"name": "true"},
        "persistence": {"enabled": True, "storageClassName": "1", "size": "10"},
        "ephemeralSize": "1000000000",
        "ingress": {"enabled": True, "hosts": ["1.2"], "className": "false", "path": "/a #b"},
        "secretFiles": [{"secret": "123", "items": {"1": "2"}}],
        "podSecurityContext": {"runAsUser": 1000660000},
        "networkPolicy": {"enabled": True},
    }
    objects = render(merged(MINIMAL, odd), release="on")
    expect_valid_objects(objects, "odd values", KUBERNETES_VERSIONS[-1:])
    assert pod_spec(objects)["securityContext"]["runAsUser"] == 1000660000
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    # Labels of selectors are the chart's; the nearest value wins otherwise.
    assert labels["app.kubernetes.io/name"] == "on" and labels["app.kubernetes.io/instance"] == "on" and labels["team"] == "no", labels
    # The certificate of an Ingress may be the controller's.
    assert one(render(merged(MINIMAL, merged(INGRESS, {"ingress": {"tls": [{"hosts": ["a.example.com"]}]}}))), "Ingress")["spec"]["tls"] == [{"hosts": ["a.example.com"]}]
    # Go templates in values are text.
    braces = {"documents": {"a": {"name": "{{ fail }}"}}, "podAnnotations": {"a": "{{ .Release.Name }}"}}
    objects = render(merged(MINIMAL, braces))
    assert json.loads(objects["ConfigMap", "gate-gatepost-agents"]["data"]["a.yaml"])["name"] == "{{ fail }}"
    assert one(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]["a"] == "{{ .Release.Name }}"
    own = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}
    assert pod_spec(render(merged(MINIMAL, {"topologySpreadConstraints": [own]})))["topologySpreadConstraints"] == [own]


@test
def gatepost_check_accepts_every_rendered_configuration():
    for values in VALUES:
        pod = Pod(render(values), options.folder / values.stem)
        result = run(options.gatepost, "check", "-c", pod.config_file(), env=pod.environment(), ok=False)
        assert result.returncode == 0, f"{values.name}: {result.stdout}{result.stderr}\n{pod.config_file().read_text()}"
        print(f"{values.name}: {result.stdout.split(': ', 1)[1].strip()}; {result.stderr.strip().replace(str(pod.root), '')}")


OWN_CLAIM = {"extraVolumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}], "extraVolumeMounts": [{"name": "data", "mountPath": "/data"}]}
BRIDGE = {"url": "mqtts://b.example.com", "api_key": "env:A", "agents": ["*"]}
UNWRITABLE = ["../gatepost/config/file", "/etc/gatepost/file", "/file", "/var/lib/gatepost-2/file", "/var/lib/gatepost/../file"]


def written_paths(path):
    """Each setting that names a file or folder which the gateway writes, with values that set it to a path."""
    config = {
        "agents.last_known_good": {"agents": {"last_known_good": path}},
        "registry.sqlite_file": {"registry": {"sqlite_file": path}},
        "tasks.sqlite_file": {"tasks": {"sqlite_file": path}},
        "mqtt_bridge[1].state_folder": {"mqtt_bridge": [BRIDGE, BRIDGE | {"state_folder": path}]},
        "audit.file": {"audit": {"file": path}},
        "audit.anchor_file": {"audit": {"file": "/var/lib/gatepost/log/audit.log", "anchor_file": path}},
        "limits.quota_state_file": {"limits": {"quota_state_file": path}},
        "access_log.output": {"access_log": {"output": path}},
        "shutdown.handover_socket": {"shutdown": {"handover_socket": path}},
    }
    return {f"config.{setting}": {"config": changes, "persistence": {"enabled": True}} for setting, changes in config.items()}


REFUSED = [
    ({"image": {"repository": ""}}, "image.repository is empty"),
    ({"replicas": 2, "config": {"registry": {}}}, "replicas is greater than 1, but SQLite, where config.registry would keep data, is for one gateway"),
    ({"replicas": 2, "config": {"tasks": {}}}, "SQLite, where config.tasks would keep data"),
    ({"replicas": 2, "config": {"registry": {"database": "env:A"}, "tasks": {"sqlite_file": "/x.db"}}}, "SQLite, where config.tasks would keep data"),
    ({"autoscaling": {"enabled": True}, "config": {"registry": {}, "tasks": {}}}, "autoscaling.maxReplicas is greater than 1, but SQLite, where config.registry and config.tasks would keep data"),
    ({"replicas": 2, "persistence": {"enabled": True}}, "the volume of persistence serves one gateway"),
    ({"replicas": 2, "config": {"mqtt_bridge": [{"url": "mqtts://b.example.com", "api_key": "env:A", "agents": ["*"]}]}}, "only one gateway may offer an agent on a broker"),
    ({"replicas": 2, "state": {"perReplica": False}}, "replicas is greater than 1, but each pod would have its own rates, quotas, idempotency keys and paired pages: set state.redis or state.database"),
    ({"autoscaling": {"enabled": True}, "state": {"perReplica": False}}, "autoscaling.maxReplicas is greater than 1, but each pod would have its own rates"),
    ({"state": {"redis": {"url": "redis://a"}, "database": {"urlSecret": {"name": "a", "key": "b"}}}}, "state.redis and state.database both name a server"),
    ({"state": {"redis": {"url": "redis://a"}}, "config": {"state": {"database": "env:A"}}}, "state and config.state both name the server"),
    ({"state": {"database": {"url": "postgres://a/b", "urlSecret": {"name": "a", "key": "b"}}}}, "state.database.url and state.database.urlSecret are both set"),
    ({"state": {"redis": {"url": "rediss://gatepost:hunter2@redis.example.com"}}}, "the URL of state.redis or state.database holds a password"),
    ({"state": {"redis": {"url": "rediss://:hunter2@redis.example.com"}}}, "the URL of state.redis or state.database holds a password"),
    ({"state": {"database": {"url": "postgres://gatepost:hunter2@db.example.com/gatepost"}}}, "the URL of state.redis or state.database holds a password"),
    ({"state": {"database": {"url": 'postgres://gatepost:"hunter2@db.example.com/gatepost'}}}, "the URL of state.redis or state.database holds a password"),
    ({"state": {"database": {"url": "postgres://db/gatepost?user=gp&password=hunter2"}}}, "the URL of state.redis or state.database holds a password"),
    ({"state": {"redis": {"url": "redis://a", "sentinelPasswordSecret": {"name": "a", "key": "b"}}}}, "no sentinels are: set state.redis.sentinelMaster"),
    ({"state": {"networkPeers": [{"podSelector": {}}]}}, "state.networkPeers is set, but state names no server"),
    ({"state": {"redis": {"url": "env:A"}}}, "/state/redis/url"),
    ({"state": {"redis": {"passwordSecret": {"name": "a"}}}}, "/state/redis/passwordSecret"),
    ({"state": {"redis": {"password": "hunter2"}}}, "additional properties 'password' not allowed"),
    ({"config": {"registry": {}}}, "config.registry would lose every published document with its pod"),
    ({"config": {"registry": {"sqlite_file": "/tmp/gatepost.db"}}}, "config.registry would lose every published document with its pod"),
    ({"config": {"audit": {"file": "/var/lib/gatepost/audit.log"}}}, "config.audit would lose its log with the pod: set persistence.enabled to true"),
    ({"config": {"audit": {"file": "/tmp/audit.log"}}, "persistence": {"enabled": True}}, "config.audit would lose its log with the pod"),
    ({"replicas": 2, "config": {"audit": {"file": "/var/lib/gatepost/audit.log"}}}, "config.audit would lose its log with the pod"),
    ({"config": {"audit": {"file": "/var/lib/gatepost/audit.log", "anchor_file": "/tmp/anchor"}}, "persistence": {"enabled": True}}, "config.audit would lose its anchor with the pod"),
    (merged(OWN_CLAIM, {"replicas": 2, "config": {"audit": {"file": "/data/audit.log"}}}), "replicas is greater than 1, but the file of config.audit.file is for one gateway"),
    (merged(OWN_CLAIM, {"replicas": 2, "config": {"limits": {"quota_state_file": "/data/quotas"}, "access_log": {"output": "/data/access.log"}}}), "the file of config.access_log.output and config.limits.quota_state_file is for one gateway"),
    ({"ephemeralSize": "512Mi", "config": {"tasks": {"max_size": "410MiB"}}}, "config.tasks.max_size is 410MiB, but the volume of tasks has 512Mi (ephemeralSize), of which they may take 80 % at most"),
    ({"persistence": {"enabled": True, "size": "1.5Gi"}, "config": {"tasks": {"max_size": "2GiB"}, "registry": {}}}, "the volume of tasks has 1.5Gi (persistence.size)"),
    ({"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 3}}, "autoscaling.minReplicas is greater than autoscaling.maxReplicas"),
    ({"autoscaling": {"enabled": True, "targetCpuUtilization": None}}, "autoscaling measures nothing"),
    ({"config": {"listeners": [{"address": "127.0.0.1:8080"}]}}, "config.listeners[0].address is 127.0.0.1:8080: no other pod reaches a loopback address"),
    ({"config": {"listeners": [{"address": "0.0.0.0:0", "allow_plaintext": True}]}}, "a Service needs a port that is known"),
    ({"config": {"listeners": [{"address": "0.0.0.0:8080"}]}}, "config.listeners[0] has neither tls nor allow_plaintext"),
    ({"config": {"listeners": [{"address": "unix:/run/gatepost.sock", "allow_plaintext": True}]}}, "a Service needs a port that is known"),
    ({"config": {"listeners": [{"address": "0.0.0.0:8080", "allow_plaintext": True}, {"address": "[::]:8080", "allow_plaintext": True}]}}, "have one port (8080, 8080, 9902, 9901)"),
    ({"config": {"listeners": [{"address": "0.0.0.0:9901", "allow_plaintext": True}]}}, "have one port (9901, 9902, 9901)"),
    ({"service": {"port": 8081}, "config": {"listeners": [{"address": "0.0.0.0:8080", "allow_plaintext": True}, {"address": "0.0.0.0:8081", "allow_plaintext": True}]}}, "two listeners would have one port of the Service (8081, 8081)"),
    ({"service": {"nodePort": 30080}}, "service.nodePort is set, but a Service of type ClusterIP is not reached from outside"),
    ({"service": {"externalTrafficPolicy": "Local"}}, "service.externalTrafficPolicy is set, but a Service of type ClusterIP"),
    ({"service": {"type": "NodePort", "loadBalancerClass": "mine"}}, "service.loadBalancerClass is set, but service.type is NodePort: set it to LoadBalancer"),
    ({"service": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}}, "service.loadBalancerSourceRanges is set, but service.type is ClusterIP"),
    ({"secretFiles": [{"secret": "a", "items": {"k": "tls/x"}}, {"secret": "b", "items": {"k": "tls/x"}}]}, "have the path tls/x below /etc/gatepost/config"),
    ({"secretFiles": [{"secret": "a", "items": {"k": "x", "l": "x"}}]}, "have the path x below /etc/gatepost/config"),
    ({"secretFiles": [{"secret": "a", "items": {"k": "tls"}}], "configMapFiles": [{"configMap": "b", "items": {"k": "tls/x"}}]}, "or one is the folder of the other (tls)"),
    ({"state": {"database": {"urlSecret": {"name": "a", "key": "k"}}}, "secretFiles": [{"secret": "a", "items": {"k": "state/url"}}]}, "have the path state/url"),
    ({"secretFiles": [{"secret": "a", "items": {"k": "gatepost.yaml/x"}}]}, "or one is the folder of the other (gatepost.yaml)"),
    ({"fullnameOverride": "1gate"}, "a Service cannot have the name 1gate"),
    ({"fullnameOverride": "my.gate"}, "a Service cannot have the name my.gate"),
    ({"config": {"health": {"address": "[::1]:9902"}}}, "config.health.address is [::1]:9902: probes do not reach a loopback address"),
    ({"config": {"health": {"address": "0.0.0.0:0"}}}, "probes need a port that is known"),
    ({"config": {"health": None}}, "config.health.address is missing"),
    ({"documents": None}, "there are no agents"),
    ({"config": {"agents": {"sources": [{"kind": "kubernetes"}]}}}, "a source of kind kubernetes, but pods have no token: set kubernetesSources.enabled"),
    ({"config": {"agents": {"sources": [{"kind": "kubernetes", "url": "https://api.example.com"}]}}}, "a source of kind kubernetes, but pods have no token"),
    ({"config": {"agents": {"sources": [{"kind": "kubernetes"}]}}, "kubernetesSources": {"enabled": True, "namespaces": ["team-a"]}}, "kubernetesSources.namespaces gives the right to read in team-a, but the sources of kind kubernetes read in agents"),
    ({"config": {"agents": {"sources": [{"kind": "kubernetes", "kubernetes": {"namespaces": ["team-b", "team-a"]}}]}}, "kubernetesSources": {"enabled": True, "namespaces": ["team-a"]}}, "the right to read in team-a, but the sources of kind kubernetes read in team-a, team-b"),
    ({"config": {"agents": {"sources": [{"kind": "kubernetes"}]}}, "kubernetesSources": {"enabled": True, "namespaces": ["*"]}}, "the right to read in *, but the sources of kind kubernetes read in agents"),
    ({"serviceAccount": {"create": False}, "kubernetesSources": {"enabled": True}}, "kubernetesSources.enabled would give every pod of the namespace the gateway's rights"),
    ({"ingress": {"enabled": True}}, "ingress.hosts is empty"),
    ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs is empty"),
    ({"terminationGracePeriodSeconds": 60}, "terminationGracePeriodSeconds is 60, but a shutdown may take 330 s"),
    ({"terminationGracePeriodSeconds": 330, "config": {"agents": {"defaults": {"timeouts": {"preset": "long_running"}}}}}, "a shutdown may take 3630 s"),
    ({"monitoring": {"disableApiCheck": True, "serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}}, "would count every call twice"),
    ({"monitoring": {"disableApiCheck": True, "podMonitor": {"enabled": True}}, "config": {"health": {"metrics": False}}}, "config.health.metrics is not true"),
    ({"monitoring": {"serviceMonitor": {"enabled": True}}}, "the cluster has no ServiceMonitors"),
    ({"monitoring": {"prometheusRule": {"enabled": True}}}, "the cluster has no PodMonitors and PrometheusRules"),
    ({"monitoring": {"disableApiCheck": True, "prometheusRule": {"enabled": True, "disabled": ["GatepostDwn"]}}}, "disabled names GatepostDwn, which is no alert of the chart (GatepostDown, "),
    ({"config": {"registry": {"database": "postgres://gatepost:hunter2@db.example.com/gatepost"}}}, "config or documents have a URL with a password"),
    ({"config": {"registry": {"database": "postgres://db/gatepost?user=gp&password=hunter2"}}}, "config or documents have a URL with a password"),
    ({"config": {"tasks": {"database": "postgresql://db/gatepost?password=hunter2"}}}, "config or documents have a URL with a password"),
    ({"documents": {"a": {"endpoint": "https://gatepost:hunter2@a.example.com/"}}}, "config or documents have a URL with a password"),
    *[(changes, f"{setting} is file, where the gateway cannot write: set a path below /var/lib/gatepost, or") for setting, changes in written_paths("file").items()],
    *[(written_paths(path)["config.audit.anchor_file"], f"config.audit.anchor_file is {path}, where the gateway cannot write") for path in UNWRITABLE],
    *[(written_paths(path)["config.audit.file"], f"config.audit.file is {path}, where the gateway cannot write") for path in UNWRITABLE],
    ({"config": {"access_log": {"output": "/data/access.log"}}, "extraVolumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]}, "config.access_log.output is /data/access.log, where the gateway cannot write"),
    # Those of the schema.
    ({"config": {"auth": {"api_keys": {"files": ["keys.jsonl"], "pepper": "hunter2"}}}}, "/config/auth/api_keys/pepper"),
    ({"replica": 2}, "additional properties 'replica' not allowed"),
    ({"image": {"repo": "x"}}, "additional properties 'repo' not allowed"),
    ({"config": {"limits": {"per_callers": "5/s"}}}, "additional properties 'per_callers' not allowed"),
    ({"config": {"limits": {"per_caller": "five"}}}, "/config/limits/per_caller"),
    ({"config": {"shutdown": {"drain_timeout": "5 minutes"}}}, "/config/shutdown/drain_timeout"),
    ({"config": {"contract": {"input": "always"}}}, "/config/contract/input"),
    ({"documents": {"a/b": {}}}, "invalid propertyName 'a/b'"),
    ({"secretFiles": [{"secret": "s", "items": {"k": "../x"}}]}, "/secretFiles/0/items/k"),
    ({"secretFiles": [{"secret": "s", "items": {"k": "gatepost.yaml"}}]}, "/secretFiles/0/items/k"),
    ({"secretFiles": [{"secret": "s", "value": "hunter2", "items": {"k": "x"}}]}, "additional properties 'value' not allowed"),
    ({"service": {"port": 70000}}, "/service/port"),
    ({"kubernetesSources": {"namespaces": ["*", "a"]}}, "/kubernetesSources/namespaces"),
    ({"kubernetesSources": {"namespaces": ["A"]}}, "/kubernetesSources/namespaces"),
    ({"ingress": None}, "missing property 'ingress'"),
    ({"podDisruptionBudget": {"maxUnavailable": "0%"}}, "/podDisruptionBudget/maxUnavailable"),
]


@test
def contradictions_are_refused_with_a_sentence():
    assert template(MINIMAL).returncode == 0
    assert template(merged(MINIMAL, {"config": {"registry": {"database": "postgres://gatepost@[::1]:5432/gatepost"}}})).returncode == 0
    assert template(merged(MINIMAL, {"config": {"registry": {"database": "postgres://db/gatepost?user=gp&sslmode=require"}}})).returncode == 0
    assert template(merged(MINIMAL, merged(OWN_CLAIM, {"config": {"registry": {"sqlite_file": "/data/gatepost.db"}}}))).returncode == 0
    # A database makes the file of SQLite irrelevant.
    assert template(merged(MINIMAL, {"config": {"registry": {"database": "env:A", "sqlite_file": "gatepost.db"}}})).returncode == 0
    for changes, sentence in REFUSED:
        result = template(merged(MINIMAL, changes), ok=False)
        assert result.returncode != 0 and sentence in result.stderr, f"{changes}: {result.stderr}"
        # Helm itself repeats a value that its schema refuses.
        assert "hunter2" not in result.stderr or "specifications of the schema" in result.stderr, result.stderr


@test
def the_gateway_writes_to_volumes_of_the_pod():
    # Every path of the configuration is one that the gateway writes, or one that it reads only.
    definitions = json.loads((REPOSITORY / "config/gatepost.schema.json").read_text())["$defs"].values()
    paths = {name for definition in definitions for name, node in definition.get("properties", {}).items() if "#/$defs/ConfigPath" in json.dumps(node)}
    read = {"ca", "ca_file", "certificate", "client_ca", "client_crl", "database_ca", "files", "folder", "jwks", "key", "publisher_jwks", "service_account"}
    # The output of the access log may be a stream as well, so that the schema has it as a text.
    written = {setting.split(".")[-1] for setting in written_paths("")} - {"output"}
    assert paths == read | written, paths ^ (read | written)
    mounted = {"extraVolumes": [{"name": "data", "emptyDir": {}}], "extraVolumeMounts": [{"name": "data", "mountPath": "/data/"}]}
    for path in ("/var/lib/gatepost/file", "/tmp/file", "/data/a/file"):
        for setting, changes in written_paths(path).items():
            # What may not be lost has a test of its own.
            if path == "/tmp/file" and setting in ("config.registry.sqlite_file", "config.audit.file", "config.audit.anchor_file"):
                continue
            assert template(merged(merged(MINIMAL, mounted), changes), ok=False).returncode == 0, (setting, path)


@test
def tasks_have_a_bound_that_their_volume_holds():
    tasks, disk = {"config": {"tasks": {}}}, lambda size: {"persistence": {"enabled": True, "size": size}}
    shared = {"config": {"tasks": {"sqlite_file": None}, "registry": {"sqlite_file": "/var/lib/gatepost/a.db"}}}
    for changes, bound in [
        ({}, "512MiB"),
        ({"ephemeralSize": "100Mi"}, "50MiB"),
        ({"ephemeralSize": "1000000"}, "1MiB"),
        ({"config": {"tasks": {"sqlite_file": "/tmp/tasks.db"}}}, "512MiB"),
        (disk("1.5Gi"), "768MiB"),
        (merged(disk("2Gi"), shared), "1024MiB"),
        # The gateway's default is less than half.
        (disk("4Gi"), None),
        (disk("1Ti"), None),
        # The operator's own bound, and volumes of which the chart does not know the size.
        ({"config": {"tasks": {"max_size": "800MiB"}}}, "800MiB"),
        (merged(OWN_CLAIM, {"config": {"tasks": {"sqlite_file": "/data/tasks.db", "max_size": "100GiB"}}}), "100GiB"),
        ({"persistence": {"enabled": True, "size": "1Gi", "existingClaim": "mine"}}, None),
        ({"config": {"tasks": {"database": "env:DATABASE_URL"}}}, None),
        ({"config": {"registry": {"database": "env:DATABASE_URL"}}}, None),
        (merged(disk("1Gi"), {"config": {"tasks": {"sqlite_file": "/var/lib/gatepost/tasks.db"}, "registry": {"database": "env:DATABASE_URL"}}}), "512MiB"),
    ]:
        objects = render(merged(merged(MINIMAL, tasks), changes))
        assert config_of(objects)["tasks"].get("max_size") == bound, (changes, config_of(objects)["tasks"])
    # The gateway accepts what the chart writes, and its default is the one that the template knows.
    for number, size in enumerate(["1000000", "100Mi", "1.5Gi"]):
        pod = Pod(render(merged(MINIMAL, merged(tasks, {"ephemeralSize": size}))), options.folder / f"pod-{number}")
        run(options.gatepost, "check", "-c", pod.config_file(), env=pod.environment())
    schema = json.loads((REPOSITORY / "config/gatepost.schema.json").read_text())
    assert schema["$defs"]["Tasks"]["properties"]["max_size"]["default"] == "2GiB"


@test
def a_parent_chart_turns_the_chart_on_and_off():
    parent = options.folder / "parent"
    shutil.copytree(CHART, parent / "charts/gatepost")
    dependency = {"name": "gatepost", "version": "*", "condition": "gatepost.enabled"}
    (parent / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}))
    for enabled in (True, False):
        values = {"global": {"region": "north"}, "gatepost": merged(MINIMAL, {"enabled": enabled})}
        rendered = run(options.helm, "template", "gate", parent, "--values", write_values(values)).stdout
        assert ("kind: Deployment" in rendered) == enabled, (enabled, rendered)


# For each value that README.md documents: another value, a text that it adds to the rendered objects, and what else has to
# be set.
MONITORS = {"monitoring": {"disableApiCheck": True}}
SERVICE_MONITOR = merged(MONITORS, {"monitoring": {"serviceMonitor": {"enabled": True}}})
POD_MONITOR = merged(MONITORS, {"monitoring": {"podMonitor": {"enabled": True}}})
RULES = merged(MONITORS, {"monitoring": {"prometheusRule": {"enabled": True}}})
DASHBOARDS = {"monitoring": {"dashboards": {"enabled": True}}}
INGRESS = {"ingress": {"enabled": True, "hosts": ["a.example.com"]}}
ROUTE = {"httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]}}
SCALING = {"autoscaling": {"enabled": True}}
POLICY = {"networkPolicy": {"enabled": True}}
VOLUME = {"persistence": {"enabled": True}}
CLUSTER = {"kubernetesSources": {"enabled": True}}
REDIS = {"state": {"redis": {"url": "rediss://redis.example.com"}}}
DATABASE = {"state": {"database": {"url": "postgres://db.example.com/gatepost"}}}
BALANCER = {"service": {"type": "LoadBalancer"}}
EFFECTS = {
    "image.repository": ("r.example.com/other", 'image: "r.example.com/other:'),
    "image.tag": ("9.9", 'gatepost:9.9"'),
    "image.digest": (f"sha256:{'1' * 64}", f'gatepost@sha256:{"1" * 64}"'),
    "image.pullPolicy": ("Always", "imagePullPolicy: Always"),
    "imagePullSecrets": ([{"name": "registry"}], "imagePullSecrets:\n        - name: registry"),
    "nameOverride": ("other", 'app.kubernetes.io/name: "other"'),
    "fullnameOverride": ("other", 'kind: Deployment\nmetadata:\n  name: "other"'),
    "namespaceOverride": ("other", 'namespace: "other"'),
    "commonLabels": ({"team": "platform"}, "team: platform"),
    "config": ({"limits": {"per_caller": "7/s"}}, '"per_caller": "7/s"'),
    "documents": ({"b": {"id": "b"}}, 'b.yaml: |'),
    "secretFiles": ([{"secret": "keys", "items": {"k": "keys.jsonl"}}], 'name: "keys"\n                  items:\n                    - {key: "k", path: "keys.jsonl"}'),
    "configMapFiles": ([{"configMap": "ca", "items": {"k": "tls/ca.pem"}}], 'name: "ca"\n                  items:\n                    - {key: "k", path: "tls/ca.pem"}'),
    "env": ([{"name": "A", "value": "b"}], "env:\n            - name: A\n              value: b"),
    "envFrom": ([{"secretRef": {"name": "s"}}], "envFrom:\n            - secretRef:\n                name: s"),
    "replicas": (3, "replicas: 3"),
    "autoscaling.enabled": (True, "kind: HorizontalPodAutoscaler"),
    "autoscaling.minReplicas": (3, "minReplicas: 3", SCALING),
    "autoscaling.maxReplicas": (7, "maxReplicas: 7", SCALING),
    "autoscaling.targetCpuUtilization": (55, "averageUtilization: 55", SCALING),
    "autoscaling.targetCallsInFlight": (99, 'averageValue: "99"', SCALING),
    "autoscaling.behavior": ({"scaleDown": {"stabilizationWindowSeconds": 9}}, "stabilizationWindowSeconds: 9", SCALING),
    "state.redis.url": ("rediss://r.example.com", '"url": "rediss://r.example.com"'),
    "state.redis.urlSecret": ({"name": "r", "key": "k"}, 'secret:\n                  name: "r"\n                  items:\n                    - {key: "k", path: "state/url"}'),
    "state.redis.passwordSecret": ({"name": "r", "key": "k"}, 'secret:\n                  name: "r"\n                  items:\n                    - {key: "k", path: "state/password"}', REDIS),
    "state.redis.sentinelMaster": ("primary", '"master": "primary"', REDIS),
    "state.redis.sentinelPasswordSecret": ({"name": "r", "key": "k"}, '- {key: "k", path: "state/sentinel-password"}', merged(REDIS, {"state": {"redis": {"sentinelMaster": "m"}}})),
    "state.redis.cluster": (True, '"cluster": true', REDIS),
    "state.redis.caConfigMap": ({"name": "r", "key": "k"}, 'configMap:\n                  name: "r"\n                  items:\n                    - {key: "k", path: "state/ca.pem"}', REDIS),
    "state.redis.plaintext": (True, '"plaintext": true', REDIS),
    "state.redis.keyPrefix": ("other", '"key_prefix": "other"', REDIS),
    "state.database.url": ("postgres://d.example.com/d", '"database": "postgres://d.example.com/d"'),
    "state.database.urlSecret": ({"name": "d", "key": "k"}, '"database": "file:state/url"'),
    "state.database.caConfigMap": ({"name": "d", "key": "k"}, '"database_ca": "state/ca.pem"', DATABASE),
    "state.timeout": ("50ms", '"timeout": "50ms"', REDIS),
    "state.networkPeers": ([{"podSelector": {"a": "b"}}], "podSelector:\n          a: b", merged(POLICY, merged(REDIS, {"networkPolicy": {"egress": []}}))),
    "state.networkPorts": ([7777], "port: 7777", merged(POLICY, merged(REDIS, {"networkPolicy": {"egress": []}, "state": {"networkPeers": [{"podSelector": {}}]}}))),
    "persistence.enabled": (True, "kind: PersistentVolumeClaim"),
    "persistence.existingClaim": ("mine", 'claimName: "mine"', VOLUME),
    "persistence.storageClassName": ("fast", 'storageClassName: "fast"', VOLUME),
    "persistence.size": ("7Gi", 'storage: "7Gi"', VOLUME),
    "persistence.annotations": ({"a": "b"}, "a: b\n    helm.sh/resource-policy: keep", VOLUME),
    "ephemeralSize": ("7Mi", 'sizeLimit: "7Mi"'),
    "service.type": ("NodePort", "type: NodePort"),
    "service.port": (8443, "port: 8443"),
    "service.nodePort": (30080, "nodePort: 30080", {"service": {"type": "NodePort"}}),
    "service.appProtocol": ("http", 'appProtocol: "http"'),
    "service.ipFamilyPolicy": ("PreferDualStack", "ipFamilyPolicy: PreferDualStack"),
    "service.loadBalancerClass": ("mine", 'loadBalancerClass: "mine"', BALANCER),
    "service.loadBalancerSourceRanges": (["192.0.2.0/24"], "loadBalancerSourceRanges:\n    - 192.0.2.0/24", BALANCER),
    "service.externalTrafficPolicy": ("Local", 'externalTrafficPolicy: "Local"', BALANCER),
    "service.annotations": ({"a": "b"}, "annotations:\n    a: b"),
    "service.labels": ({"tier": "edge"}, "tier: edge"),
    "ingress.enabled": (True, "kind: Ingress\n", {"ingress": {"hosts": ["a.example.com"]}}),
    "ingress.className": ("nginx", 'ingressClassName: "nginx"', INGRESS),
    "ingress.annotations": ({"a": "b"}, "annotations:\n    a: b", INGRESS),
    "ingress.hosts": (["b.example.com"], 'host: "b.example.com"', INGRESS),
    "ingress.path": ("/ai", 'path: "/ai"', INGRESS),
    "ingress.tls": ([{"secretName": "tls"}], "tls:\n    - secretName: tls", INGRESS),
    "httpRoute.enabled": (True, "kind: HTTPRoute", {"httpRoute": {"parentRefs": [{"name": "public"}]}}),
    "httpRoute.parentRefs": ([{"name": "other"}], "parentRefs:\n    - name: other", ROUTE),
    "httpRoute.hostnames": (["a.example.com"], "hostnames:\n    - a.example.com", ROUTE),
    "httpRoute.path": ("/ai", 'value: "/ai"', ROUTE),
    "httpRoute.filters": ([{"type": "RequestMirror"}], "filters:\n        - type: RequestMirror", ROUTE),
    "httpRoute.timeouts": ({"request": "0s"}, "timeouts:\n        request: 0s", ROUTE),
    "httpRoute.annotations": ({"a": "b"}, "annotations:\n    a: b", ROUTE),
    "serviceAccount.create": (False, 'serviceAccountName: "default"'),
    "serviceAccount.name": ("mine", 'kind: ServiceAccount\nmetadata:\n  name: "mine"'),
    "serviceAccount.annotations": ({"a": "b"}, "annotations:\n    a: b"),
    "kubernetesSources.enabled": (True, "kind: Role\n"),
    "kubernetesSources.namespaces": (["other"], 'namespace: "other"', CLUSTER),
    "resources": ({"limits": {"cpu": "3"}}, 'cpu: "3"'),
    "podSecurityContext": ({"runAsUser": 1000}, "runAsUser: 1000\n"),
    "securityContext": ({"procMount": "Default"}, "procMount: Default"),
    "hostUsers": (False, "hostUsers: false"),
    "probes": ({"liveness": {"periodSeconds": 77}}, "periodSeconds: 77"),
    "terminationGracePeriodSeconds": (999, "terminationGracePeriodSeconds: 999"),
    "minReadySeconds": (77, "minReadySeconds: 77"),
    "revisionHistoryLimit": (7, "revisionHistoryLimit: 7"),
    "podDisruptionBudget.enabled": (True, "kind: PodDisruptionBudget", {"replicas": 2}),
    "podDisruptionBudget.maxUnavailable": ("30%", "maxUnavailable: 30%", {"replicas": 2}),
    "topologySpreadConstraints": ([{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}], "topologyKey: rack"),
    "affinity": ({"podAffinity": {}}, "affinity:\n        podAffinity: {}"),
    "nodeSelector": ({"pool": "edge"}, "nodeSelector:\n        pool: edge"),
    "tolerations": ([{"operator": "Exists"}], "tolerations:\n        - operator: Exists"),
    "priorityClassName": ("high", 'priorityClassName: "high"'),
    "podAnnotations": ({"a": "b"}, "        a: b\n        checksum/"),
    "podLabels": ({"zone": "edge"}, "        zone: edge"),
    "initContainers": ([{"name": "wait"}], "initContainers:\n        - name: wait"),
    "extraContainers": ([{"name": "log"}], "        - name: log\n      volumes:"),
    "extraVolumes": ([{"name": "more", "emptyDir": {}}], "        - emptyDir: {}\n          name: more"),
    "extraVolumeMounts": ([{"name": "more", "mountPath": "/more"}], "            - mountPath: /more\n              name: more"),
    "networkPolicy.enabled": (True, "kind: NetworkPolicy"),
    "networkPolicy.callers": ([{"podSelector": {"a": "b"}}], "from:\n        - podSelector:\n            a: b", POLICY),
    "networkPolicy.monitoring": ([{"podSelector": {"a": "b"}}], "        - podSelector:\n            a: b", POLICY),
    "networkPolicy.egress": ([{"to": []}], "- Egress\n", POLICY),
    "monitoring.labels": ({"a": "b"}, "    a: b", RULES),
    "monitoring.serviceMonitor.enabled": (True, "kind: ServiceMonitor", MONITORS),
    "monitoring.serviceMonitor.interval": ("77s", "interval: 77s", SERVICE_MONITOR),
    "monitoring.serviceMonitor.scrapeTimeout": ("7s", "scrapeTimeout: 7s", SERVICE_MONITOR),
    "monitoring.podMonitor.enabled": (True, "kind: PodMonitor", MONITORS),
    "monitoring.podMonitor.interval": ("77s", "interval: 77s", POD_MONITOR),
    "monitoring.podMonitor.scrapeTimeout": ("7s", "scrapeTimeout: 7s", POD_MONITOR),
    "monitoring.prometheusRule.enabled": (True, "kind: PrometheusRule", MONITORS),
    "monitoring.prometheusRule.additionalGroups": ([{"name": "ours", "rules": []}], "- name: ours", RULES),
    "monitoring.dashboards.enabled": (True, "gate-gatepost-dashboard-overview"),
    "monitoring.dashboards.labels": ({"a": "b"}, "    a: b", DASHBOARDS),
    "monitoring.dashboards.annotations": ({"a": "b"}, "  annotations:\n    a: b", DASHBOARDS),
    "extraObjects": (["kind: Other"], "kind: Other"),
}


@test
def each_documented_value_has_an_effect():
    readme = (CHART / "README.md").read_text().split("<!-- values -->")[1].split("<!-- /values -->")[0]
    documented = set(re.findall(r"(?m)^\| `([\w.]+)` \|", readme))
    # The test of contradictions shows the effect of these three.
    others = {"monitoring.disableApiCheck", "monitoring.prometheusRule.disabled", "state.perReplica"}
    assert documented == EFFECTS.keys() | others, documented ^ (EFFECTS.keys() | others)
    rendered = {}
    for path, (value, text, *needed) in EFFECTS.items():
        needed = needed[0] if needed else {}
        changes = value
        for key in reversed(path.split(".")):
            changes = {key: changes}
        # What is on by default is compared with what it is without.
        off = {"podDisruptionBudget": {"enabled": False}} if path == "podDisruptionBudget.enabled" else {}
        base = merged(merged(MINIMAL, needed), off)
        key = json.dumps(base)
        if key not in rendered:
            rendered[key] = template(base).stdout
        after = template(merged(base, changes)).stdout
        assert text in after and text not in rendered[key], (path, text)


def is_token(volume):
    return any("serviceAccountToken" in source for source in volume.get("projected", {}).get("sources", []))


@test
def a_source_of_kubernetes_gets_a_token_and_rights_to_read_only():
    def rights(sources, changes):
        text = template(merged(MINIMAL, {"config": {"agents": {"sources": sources}}, "kubernetesSources": {"enabled": True}} | changes)).stdout
        objects = [item for item in yaml.load_all(text, StrictLoader) if item]
        expect_valid_objects({number: item for number, item in enumerate(objects)}, changes, KUBERNETES_VERSIONS)
        return objects, [item for item in objects if item["apiVersion"].startswith("rbac.")]

    readable = {("", "services"), ("", "configmaps"), ("discovery.k8s.io", "endpointslices")}
    reads = lambda *namespaces: {"kind": "kubernetes", "kubernetes": {"namespaces": [*namespaces]}}
    elsewhere = reads("far") | {"url": "https://api.example.com", "credential": {"bearer": "env:A"}}
    plain = {"kind": "kubernetes"}
    for sources, changes, namespaces in [
        ([plain], {}, ["agents"]),
        ([plain], {"namespaceOverride": "ai"}, ["ai"]),
        ([plain], {"kubernetesSources": {"enabled": True, "namespaces": ["agents"]}}, ["agents"]),
        # The sources say where the gateway reads.
        ([reads("one", "2"), reads("three"), reads("one"), elsewhere], {}, ["2", "one", "three"]),
        ([reads("one"), plain], {}, ["agents", "one"]),
        ([reads("one"), reads("*")], {}, [None]),
        ([reads("one", "2")], {"kubernetesSources": {"enabled": True, "namespaces": ["one", "2"]}}, ["one", "2"]),
        ([reads("*")], {"kubernetesSources": {"enabled": True, "namespaces": ["*"]}, "serviceAccount": {"create": False, "name": "shared"}}, [None]),
        ([elsewhere], {"kubernetesSources": {"enabled": True, "namespaces": ["one"]}}, ["one"]),
    ]:
        objects, items = rights(sources, changes)
        prefix = "Cluster" if namespaces == [None] else ""
        found = [(item["kind"], item["metadata"].get("namespace")) for item in items]
        assert found == [(f"{prefix}{kind}", namespace) for kind in ("Role", "RoleBinding") for namespace in namespaces], found
        (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
        account = {"kind": "ServiceAccount", "name": deployment["spec"]["template"]["spec"]["serviceAccountName"], "namespace": deployment["metadata"]["namespace"]}
        for role, binding in zip(items[: len(namespaces)], items[len(namespaces) :]):
            assert all(rule.keys() == {"apiGroups", "resources", "verbs"} and rule["verbs"] == ["get", "list", "watch"] for rule in role["rules"]), role
            assert {(group, name) for rule in role["rules"] for group in rule["apiGroups"] for name in rule["resources"]} == readable, role
            assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": role["metadata"]["name"]}, binding
            assert binding["subjects"] == [account], binding
        # The files of an automounted token, where the gateway looks for them.
        spec = deployment["spec"]["template"]["spec"]
        (volume,) = [volume for volume in spec["volumes"] if is_token(volume)]
        (mount,) = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == volume["name"]]
        schema = json.loads((REPOSITORY / "config/gatepost.schema.json").read_text())
        assert mount["mountPath"] == schema["$defs"]["KubernetesSettings"]["properties"]["service_account"]["default"], mount
        token, authority, namespace = [next(iter(source.values())) for source in volume["projected"]["sources"]]
        assert [token["path"], authority["items"][0]["path"], namespace["items"][0]["path"]] == ["token", "ca.crt", "namespace"], volume
    # The role is that of the documentation.
    (documented,) = [yaml.safe_load(block) for block in re.findall(r"```ya?ml\n(.*?)```", (REPOSITORY / "docs/discovery.md").read_text(), re.DOTALL) if "\nkind: Role\n" in block]
    assert documented["rules"] == items[0]["rules"], documented
    # A source with access of its own needs no token of the chart, and gets none.
    for source in [{"url": "https://api.example.com", "credential": {"bearer": "env:A"}}, {"url": "http://127.0.0.1:8001"}, {"kubernetes": {"service_account": "/var/run/account"}}]:
        objects = render(merged(MINIMAL, {"config": {"agents": {"sources": [{"kind": "kubernetes"} | source]}}}))
        assert not of_kind(objects, "Role") and not [volume for volume in pod_spec(objects)["volumes"] if is_token(volume)], source


@test
def pods_have_no_rights_and_no_secret_is_rendered():
    for values in VALUES:
        objects = render(values)
        assert not of_kind(objects, "Secret"), values.name
        for spec in [pod_spec(objects), one(objects, "Pod")["spec"]]:
            assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False, values.name
            assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in spec["containers"]:
                if container["name"] in ("gatepost", "readiness"):
                    context = container["securityContext"]
                    assert context["readOnlyRootFilesystem"] and context["allowPrivilegeEscalation"] is False
                    assert context["capabilities"] == {"drop": ["ALL"]}
        for account in of_kind(objects, "ServiceAccount"):
            assert account["automountServiceAccountToken"] is False
        # Only a source of kind kubernetes reads the API server, and only the gateway's container has its token.
        reads = values.name == "autoscaling-values.yaml"
        assert len(of_kind(objects, "Role")) == len(of_kind(objects, "RoleBinding")) == reads, values.name
        assert [volume["name"] for volume in pod_spec(objects)["volumes"] if is_token(volume)] == ["api-access"] * reads, values.name
        for container in pod_spec(objects)["containers"] + pod_spec(objects).get("initContainers", []):
            mounted = "api-access" in {mount["name"] for mount in container.get("volumeMounts", [])}
            assert mounted == (reads and container["name"] == "gatepost"), (values.name, container["name"])
        # No mount is a single file, which the kubelet never updates.
        assert all("subPath" not in mount for mount in gateway_container(objects)["volumeMounts"])


@test
def the_pod_of_helm_test_runs_where_gateways_may_run():
    objects = render(CHART / "ci/many-replicas-values.yaml")
    gateway, test_pod = pod_spec(objects), one(objects, "Pod")["spec"]
    for key in ("nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets"):
        assert gateway[key] and test_pod.get(key) == gateway[key], (key, test_pod)
    assert test_pod["affinity"] == {"nodeAffinity": gateway["affinity"]["nodeAffinity"]}, test_pod
    # Rules on other pods are about gateways.
    other = merged(MINIMAL, {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}})
    assert "affinity" not in one(render(other), "Pod")["spec"]


@test
def selectors_match_the_gateways_and_nothing_else():
    for values in VALUES:
        objects = render(values)
        template_labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
        test_labels = one(objects, "Pod")["metadata"]["labels"]
        selectors = [service["spec"]["selector"] for service in of_kind(objects, "Service")]
        selectors += [item["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget", "PodMonitor") for item in of_kind(objects, kind)]
        selectors += [item["spec"]["podSelector"]["matchLabels"] for item in of_kind(objects, "NetworkPolicy")]
        selectors += [item["labelSelector"]["matchLabels"] for item in pod_spec(objects)["topologySpreadConstraints"]]
        for selector in selectors:
            assert selector.items() <= template_labels.items(), (values.name, selector)
            assert not selector.items() <= test_labels.items(), (values.name, selector)
        # A ServiceMonitor reads the Service of the health address, and not that of callers.
        for monitor in of_kind(objects, "ServiceMonitor"):
            selected = [service["metadata"]["name"] for service in of_kind(objects, "Service") if monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()]
            assert selected == ["gate-gatepost-health"], selected
        ports = {port["name"] for port in gateway_container(objects)["ports"]}
        for service in of_kind(objects, "Service"):
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, values.name
        name = one(objects, "Deployment")["metadata"]["name"]
        callers = objects["Service", name]
        assert {port["targetPort"] for port in callers["spec"]["ports"]} == ports - {"health"}, values.name
        # A pod that is not ready still has metrics.
        assert objects["Service", f"{name}-health"]["spec"]["publishNotReadyAddresses"] is True
        first = callers["spec"]["ports"][0]
        for ingress in of_kind(objects, "Ingress"):
            for rule in ingress["spec"]["rules"]:
                (path,) = rule["http"]["paths"]
                assert path["backend"]["service"] == {"name": name, "port": {"name": first["name"]}}, values.name
        for route in of_kind(objects, "HTTPRoute"):
            assert route["spec"]["rules"][0]["backendRefs"] == [{"name": name, "port": first["port"]}], values.name
        for policy in of_kind(objects, "NetworkPolicy"):
            assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"], values.name
            for_callers, for_monitoring = policy["spec"]["ingress"]
            assert {port["port"] for port in for_callers["ports"]} == ports - {"health"} and for_callers["from"], values.name
            assert {port["port"] for port in for_monitoring["ports"]} == {"health"}, values.name
            peers = [peer["podSelector"]["matchLabels"] for peer in for_monitoring["from"] if "podSelector" in peer]
            assert len(peers) == 1 and peers[0].items() <= test_labels.items(), peers


@test
def shared_state_has_its_secrets_by_reference_and_a_rule_of_egress():
    redis = render(CHART / "ci/redis-values.yaml")
    assert config_of(redis)["state"] == {
        "redis": {
            "url": "rediss://gatepost@sentinel-0.redis.svc:26379,sentinel-1.redis.svc:26379,sentinel-2.redis.svc:26379",
            "password": "file:state/password",
            "sentinel": {"master": "primary", "password": "file:state/sentinel-password"},
            "ca": "state/ca.pem",
            "key_prefix": "agents",
        },
        "timeout": "50ms",
    }, config_of(redis)["state"]
    *_, rule = one(redis, "NetworkPolicy")["spec"]["egress"]
    assert [port["port"] for port in rule["ports"]] == [6379, 26379], rule
    assert len(one(redis, "NetworkPolicy")["spec"]["egress"]) == 3
    database = render(CHART / "ci/database-values.yaml")
    assert config_of(database)["state"] == {"database": "file:state/url", "database_ca": "state/ca.pem"}, config_of(database)["state"]
    peers = {"networkPolicy": {"enabled": True, "egress": []}, "state": {"networkPeers": [{"podSelector": {}}]}}
    for url, ports in [("redis://[::1],[::2]:7001/3", [6379, 7001]), ("rediss://a,b:7000,c:7001", [6379, 7000, 7001]), ("valkey://u@h", [6379])]:
        policy = one(render(merged(merged(MINIMAL, peers), {"state": {"redis": {"url": url}}})), "NetworkPolicy")
        assert [port["port"] for port in policy["spec"]["egress"][0]["ports"]] == ports, (url, policy)
    policy = one(render(merged(merged(MINIMAL, peers), {"state": {"database": {"url": "postgres://u@h:6432/d"}}})), "NetworkPolicy")
    assert [port["port"] for port in policy["spec"]["egress"][0]["ports"]] == [5432, 6432], policy
    # The URL in a Secret is unknown: the ports are the usual ones, those of sentinels included, or those of the values.
    secret = {"urlSecret": {"name": "a", "key": "b"}}
    for state, ports in [
        ({"redis": secret}, [6379]),
        ({"redis": secret | {"sentinelMaster": "primary"}}, [6379, 26379]),
        ({"redis": secret | {"sentinelMaster": "primary"}, "networkPorts": [7000]}, [7000]),
        ({"database": secret}, [5432]),
    ]:
        policy = one(render(merged(merged(MINIMAL, peers), {"state": state})), "NetworkPolicy")
        assert [port["port"] for port in policy["spec"]["egress"][0]["ports"]] == ports, (state, policy)
    # The section may also be written as any other; then it is enough for several pods.
    own = merged(MINIMAL, {"replicas": 2, "state": {"perReplica": False}, "config": {"state": {"database": "env:A"}}})
    assert config_of(render(own))["state"] == {"database": "env:A"}
    # The gateway connects to it at its start only.
    template_of = lambda changes: one(render(merged(MINIMAL, changes)), "Deployment")["spec"]["template"]
    assert template_of(REDIS) != template_of({}) != template_of(DATABASE)
    assert template_of(REDIS) != template_of(merged(REDIS, {"state": {"timeout": "50ms"}}))


def seconds_of_the_shutdown(config, folder):
    """The time that the gateway asks a service manager for at SIGTERM, in seconds."""
    folder.mkdir()
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(folder / "notify"))
    manager.settimeout(20)
    pod = Pod(render(merged(MINIMAL, {"config": config})), folder)
    with manager, Gateway(pod, {"NOTIFY_SOCKET": str(folder / "notify")}) as gateway:
        gateway.process.send_signal(signal.SIGTERM)
        while not (found := re.search(rb"EXTEND_TIMEOUT_USEC=(\d+)", manager.recv(4096))):
            pass
    return int(found[1]) / 1_000_000


@test
def the_termination_grace_covers_delay_drain_and_margin():
    timeouts = lambda timeouts: {"timeouts": timeouts}
    rule = lambda settings, **more: {"agents": ["a"], "settings": settings} | more
    langgraph = {"api": {"preset": "langgraph"}}
    cases = [
        ({}, 330),
        ({"shutdown": {"drain_timeout": "30s"}}, 55),
        ({"shutdown": {"drain_timeout": "1h", "listener_close_delay": "0s"}}, 3620),
        ({"shutdown": {"drain_timeout": "1500ms", "listener_close_delay": "100ms"}}, 22),
        ({"agents": {"defaults": timeouts({"total": "1m"})}}, 90),
        ({"agents": {"defaults": timeouts({"total": None})}}, 330),
        ({"agents": {"defaults": timeouts({"total": "1m"}), "rules": [rule(timeouts({"total": "2m"})), rule({})]}}, 150),
        ({"agents": {"defaults": timeouts({"preset": "thinking"})}}, 930),
        ({"agents": {"defaults": timeouts({"preset": "long_running"})}}, 3630),
        # A time beside the preset wins.
        ({"agents": {"defaults": timeouts({"preset": "long_running", "total": "2m"})}}, 150),
        ({"agents": {"rules": [rule(timeouts({"preset": "long_running"}))]}}, 3630),
        # The preset of a rule wins over the defaults, which other agents have.
        ({"agents": {"defaults": timeouts({"total": "10m"}), "rules": [rule(timeouts({"preset": "interactive"}))]}}, 630),
        ({"agents": {"rules": [rule({}, **langgraph), rule({}, api=None)]}}, 930),
        # The preset of an API counts where no time is set.
        ({"agents": {"rules": [rule(timeouts({"total": "1m"}), **langgraph)]}}, 330),
        ({"agents": {"defaults": timeouts({"preset": "interactive"}), "rules": [rule({}, **langgraph)]}}, 330),
    ]
    for number, (changes, seconds) in enumerate(cases):
        spec = pod_spec(render(merged(MINIMAL, {"config": changes})))
        assert spec["terminationGracePeriodSeconds"] == seconds, (changes, spec["terminationGracePeriodSeconds"])
        # The kubelet counts whole seconds.
        found = seconds_of_the_shutdown(changes, options.folder / f"grace-{number}")
        assert math.ceil(found) == seconds, (changes, found)
    values = merged(MINIMAL, {"terminationGracePeriodSeconds": 400})
    assert pod_spec(render(values))["terminationGracePeriodSeconds"] == 400


@test
def only_settings_of_the_start_replace_pods():
    base = merged(MINIMAL, {"persistence": {"enabled": True}, "config": {"registry": {"publishers": []}, "tasks": {}}})

    def pod_template(changes):
        return one(render(merged(base, changes)), "Deployment")["spec"]["template"]

    before = pod_template({})
    for changes in [
        {"documents": {"b": {"id": "b", "name": "B", "endpoint": "https://b.example.com/"}}},
        {"config": {"limits": {"per_caller": "5/s"}}},
        {"config": {"access": {"grants": [{"callers": ["*"], "agents": ["*"]}]}}},
        {"config": {"tasks": {"result_ttl": "2h"}}},
        {"config": {"admin": {"access": {"roles": [{"role": "admin", "callers": ["key:a"]}]}}}},
        {"config": {"registry": {"max_documents": 5}}},
    ]:
        assert pod_template(changes) == before, changes
    for changes in [
        {"config": {"connections": {"max_connections": 5}}},
        {"config": {"shutdown": {"drain_timeout": None, "listener_close_delay": "7s"}}},
        {"config": {"access_log": {"output": "off"}}},
        {"config": {"admin": {"console": {"enabled": False}}}},
        {"config": {"admin": {"allowed_hosts": ["admin.example.com"]}}},
        {"config": {"audit": {"file": "/var/lib/gatepost/audit.log"}}},
        {"config": {"tasks": {"max_running": 5}}},
        {"config": {"tasks": {"resume": None}}},
        {"config": {"tasks": {"resume": {"max_streams": 5}}}},
        {"config": {"limits": {"max_share": 0.2}}},
        {"config": {"registry": {"sqlite_file": "/var/lib/gatepost/other.db"}}},
        {"config": {"limits": {"quota_state_file": "/var/lib/gatepost/quotas"}}},
        {"config": {"health": {"metrics": False}}},
    ]:
        assert pod_template(changes) != before, changes
    # The template, the documentation and the gateway know the same settings.
    documented = (REPOSITORY / "docs/configuration.md").read_text().split("take effect at the next start only")[1].split("## ")[0]
    rows = [line.split("|")[1:3] for line in documented.splitlines() if line.startswith("| `")]
    sections, settings = [{part for row in rows for name in re.findall(r"`([\w.]+)`", row[column]) for part in name.split(".")} for column in (0, 1)]
    sections_of_source, settings_of_source = startup_settings_of_the_source()
    # The gateway counts limits.max_share as one of the settings of connections.
    assert sections == sections_of_source | {"limits"}, (sections, sections_of_source)
    assert settings == settings_of_source | {"max_share"}, (settings, settings_of_source)
    helper = (CHART / "templates/_helpers.tpl").read_text().split('define "gatepost.startupSettings"')[1].split("{{/*")[0]
    missing = {name for name in sections | settings if f'"{name}"' not in helper}
    assert not missing, missing


def startup_settings_of_the_source():
    """The sections that the gateway compares with those of its start, and the names of settings where it compares some."""
    source = (REPOSITORY / "src/config/gateway_config.rs").read_text()
    body = lambda function: re.split(rf"\bfn {function}\b", source)[1].split("\n\n")[0]
    sections = re.findall(r'\("(\w+)", ', body("changed_startup_sections"))
    some = "".join(body(function) for function in ("differs_at_start", "registry_startup_settings", "task_startup_settings"))
    paths = re.findall(r"\b(?:admin|config|resume)\.([\w.]+)", some)
    return set(sections), {name for path in paths for name in path.split(".")} - {"as_ref", "clone"}


@test
def one_gateway_with_a_file_is_replaced_and_several_are_rolled():
    strategy = lambda objects: one(objects, "Deployment")["spec"]["strategy"]
    persistent = render(CHART / "ci/persistence-values.yaml")
    assert strategy(persistent) == {"type": "Recreate"}
    assert one(persistent, "PersistentVolumeClaim")["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    own = {"persistence": {"enabled": True, "annotations": {"helm.sh/resource-policy": "delete"}}}
    assert one(render(merged(MINIMAL, own)), "PersistentVolumeClaim")["metadata"]["annotations"] == own["persistence"]["annotations"]
    assert config_of(persistent)["registry"]["sqlite_file"] == "/var/lib/gatepost/gatepost.db"
    shared = render(CHART / "ci/database-values.yaml")
    assert strategy(shared)["rollingUpdate"]["maxUnavailable"] == 0
    assert "sqlite_file" not in config_of(shared)["registry"] and config_of(shared)["tasks"]["resume"] is None
    assert one(shared, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert not of_kind(render(MINIMAL), "PodDisruptionBudget")
    tasks = render(merged(MINIMAL, {"config": {"tasks": {}}}))
    assert config_of(tasks)["tasks"]["sqlite_file"] == "/var/lib/gatepost/gatepost.db" and strategy(tasks) == {"type": "Recreate"}
    # The same holds for another file on a claim, but not where each pod has a volume or a folder of its own.
    claim = merged(MINIMAL, OWN_CLAIM)
    assert strategy(render(claim))["type"] == "RollingUpdate"
    for config in [{"audit": {"file": "/data/audit.log"}}, {"limits": {"quota_state_file": "/data/quotas"}}, {"access_log": {"output": "/data/access.log"}}]:
        assert strategy(render(merged(claim, {"config": config}))) == {"type": "Recreate"}, config
        several = merged(claim, {"config": config, "replicas": 2})
        for own in [{"extraVolumes": [{"name": "data", "emptyDir": {}}]}, {"extraVolumeMounts": [{"name": "data", "mountPath": "/data", "subPathExpr": "$(POD_NAME)"}]}]:
            assert strategy(render(merged(several, own)))["type"] == "RollingUpdate", (config, own)
    # Two gateways with one MQTT session take its tasks from each other, also while one replaces the other.
    bridge = {"url": "mqtts://b.example.com", "api_key": "env:A", "agents": ["*"]}
    bridges = render(merged(MINIMAL, {"config": {"mqtt_bridge": [bridge, bridge | {"state_folder": None}]}}))
    assert strategy(bridges) == {"type": "Recreate"}
    # Relative to the configuration, the default would be on the read-only root file system.
    assert [bridge["state_folder"] for bridge in config_of(bridges)["mqtt_bridge"]] == ["/var/lib/gatepost/mqtt-bridge", None]
    # The autoscaler decides the number of pods, so that an upgrade does not reset it.
    scaled = render(CHART / "ci/autoscaling-values.yaml")
    assert "replicas" not in one(scaled, "Deployment")["spec"]
    metrics = one(scaled, "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert [metric["type"] for metric in metrics] == ["ContainerResource", "Pods"], metrics
    assert metrics[1]["pods"]["metric"]["name"] == "gatepost_calls_in_flight"


@test
def the_values_of_the_documentation_are_valid():
    text = (REPOSITORY / "docs/deploy.md").read_text()
    (values,) = re.findall(r"helm install gatepost helm/gatepost .*--values - <<'EOF'\n(.*?)\nEOF", text, re.DOTALL)
    pod = Pod(render(yaml.safe_load(values)), options.folder / "pod")
    result = run(options.gatepost, "check", "-c", pod.config_file(), env=pod.environment(), ok=False)
    assert result.returncode == 0 and "valid, 1 agent" in result.stdout, (result.stdout, result.stderr)
    (agent,) = re.findall(r"kubectl apply -f - <<'EOF'\n(.*?)\nEOF", text, re.DOTALL)
    agent = {item["kind"]: item for item in yaml.load_all(agent, StrictLoader)}
    expect_valid_objects(agent, "the agent of docs/deploy.md", KUBERNETES_VERSIONS)
    service, pods = agent["Service"], agent["Deployment"]["spec"]["template"]
    assert service["spec"]["selector"] == pods["metadata"]["labels"] == agent["Deployment"]["spec"]["selector"]["matchLabels"]
    host = yaml.safe_load(values)["documents"]["greeter"]["endpoint"].split("/")[2]
    assert host == f"{service['metadata']['name']}.default.svc.cluster.local" and service["spec"]["ports"][0]["port"] == 80
    program = pods["spec"]["containers"][0]["command"][-1]
    port = free_port()
    assert f'("", {service["spec"]["ports"][0]["targetPort"]})' in program
    process = subprocess.Popen([sys.executable, "-c", program.replace('("", 8000)', f'("127.0.0.1", {port})')], stderr=subprocess.DEVNULL)

    def greets():
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", b"{}"), timeout=5) as response:
            return json.load(response) == {"greeting": "Hello!"}

    try:
        eventually(greets, lambda: program, process)
    finally:
        process.kill()
        process.wait()
    named = set(re.findall(r"`(monitoring\.[\w.]+)`", text))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in named:
        value = defaults
        for step in path.split("."):
            value = value[step]
    assert named


@test
def large_numbers_stay_integers_and_null_stays_null():
    text = template(merged(MINIMAL, {"config": {"limits": {"max_tracked_keys": 5000000}}}), "--set", "config.tasks.max_tasks=2000000").stdout
    assert '"max_tracked_keys": 5000000' in text and '"max_tasks": 2000000' in text, text


@test
def notes_name_what_an_operator_may_have_missed():
    def notes(values):
        arguments = ["install", "gate", CHART, "--dry-run=client", "--namespace", "agents", "--values", write_values(values)]
        return run(options.helm, *arguments).stdout.split("\nNOTES:\n")[1]

    ingress = yaml.safe_load((CHART / "ci/ingress-values.yaml").read_text())
    assert "trusted_proxies" not in notes(ingress) and "No caller can call" not in notes(ingress)
    del ingress["config"]["listeners"]
    assert "set config.listeners[0].trusted_proxies" in notes(ingress)
    assert "No caller can call an agent yet" in notes(MINIMAL)
    # A method of authentication alone permits nothing.
    assert "No caller can call an agent yet" in notes(merged(MINIMAL, {"config": {"auth": {"mtls": {}}}}))
    assert "deployment/gate-gatepost 9901:9901" in notes(MINIMAL)
    assert "deployment/gate-gatepost 9901:9955" in notes(merged(MINIMAL, {"config": {"admin": {"address": "127.0.0.1:9955"}}}))
    several = merged(MINIMAL, {"replicas": 2})
    assert "Each pod has its own rates" in notes(several) and "Each pod has its own rates" not in notes(MINIMAL)
    redis = merged(several, REDIS)
    assert "Each pod has its own rates" not in notes(redis) and "need a rule of networkPolicy.egress" not in notes(redis)
    bounded = merged(redis, {"networkPolicy": {"enabled": True, "egress": []}})
    assert "need a rule of networkPolicy.egress" in notes(bounded)
    assert "need a rule of networkPolicy.egress" not in notes(merged(bounded, {"state": {"networkPeers": [{"podSelector": {}}]}}))
    secret = merged(bounded, {"state": {"networkPeers": [{"podSelector": {}}], "redis": {"url": "", "urlSecret": {"name": "a", "key": "b"}, "sentinelMaster": "primary"}}})
    assert "permits the ports 6379, 26379 of state.networkPeers" in notes(secret)
    assert "permits the ports" not in notes(merged(secret, {"networkPolicy": {"enabled": False}}))
    assert "permits the ports" not in notes(merged(secret, {"state": {"networkPorts": [7000]}}))
    quotas = merged(MINIMAL, {"config": {"limits": {"quota_state_file": "/var/lib/gatepost/quotas"}}})
    assert "The file of config.limits.quota_state_file ends with the pod" in notes(quotas)
    assert "ends with the pod" not in notes(merged(quotas, {"persistence": {"enabled": True}}))
    assert "Tasks and their results end with the pod" in notes(merged(MINIMAL, {"config": {"tasks": {}}}))


ALERTS = CHART / "files/alerts.yaml"


def alert_rules():
    """The alerts of the chart, by name."""
    rules = [rule for group in yaml.load(ALERTS.read_text(), StrictLoader)["groups"] for rule in group["rules"]]
    by_name = {rule["alert"]: rule for rule in rules}
    assert len(by_name) == len(rules) > 25, "two alerts have one name"
    return by_name


@test
def each_alert_fires_and_stays_silent():
    run("promtool", "check", "rules", ALERTS)
    rules = alert_rules()
    tests = yaml.load((Path(__file__).parent / "alerts_test.yaml").read_text(), StrictLoader)
    tests["rule_files"] = [str(ALERTS)]
    fires, silent = set(), set()
    for case in tests["tests"]:
        series = {entry["series"].split("{")[0] for entry in case["input_series"]}
        for expected in case["alert_rule_test"]:
            name = expected["alertname"]
            # An alert whose metrics are absent is silent for no reason.
            if not expected.get("exp_alerts") and metrics_of(rules[name]["expr"]) - {"ALERTS"} <= series:
                silent.add(name)
            for alert in expected.get("exp_alerts", []):
                fires.add(name)
                constant = {key: text for key, text in rules[name]["annotations"].items() if "{{" not in text}
                alert["exp_annotations"] = constant | alert["exp_annotations"]
    assert rules.keys() == fires, rules.keys() ^ fires
    assert rules.keys() == silent, rules.keys() ^ silent
    path = options.folder / "alerts_test.json"
    path.write_text(json.dumps(tests))
    run("promtool", "test", "rules", path)


@test
def each_alert_has_its_runbook():
    page = (REPOSITORY / "docs/runbooks.md").read_text()
    sections = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", page))
    rules = alert_rules()
    assert sections.keys() == rules.keys(), sections.keys() ^ rules.keys()
    for name, rule in rules.items():
        assert rule["labels"].keys() == {"severity"} and rule["labels"]["severity"] in ("page", "ticket"), name
        annotations = rule["annotations"]
        assert annotations.keys() == {"summary", "description", "runbook"}, name
        # Only summaries are templates, so that alerts_test.yaml need not repeat the rest.
        assert "{{" not in annotations["description"], name
        assert annotations["runbook"] == f"docs/runbooks.md#{name.lower()}", name
        parts = re.findall(r"(?m)^\*\*([\w ]+):\*\* .{20,}", sections[name])
        assert parts == ["Callers", "Look at", "Do", "Harmless"], (name, parts)
    # The texts that an operator looks for in the log.
    source = "".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.rs"))
    texts = re.findall(r"(?i)the log[^`\n]{0,40}[(:] ?`([^`]+)`", page)
    assert len(texts) >= 5 and not [text for text in texts if text not in source], texts


@test
def the_documentation_counts_alerts_and_dashboards():
    deploy = (REPOSITORY / "docs/deploy.md").read_text().split("\n## Monitoring\n")[1]
    for page in (deploy, (CHART / "README.md").read_text()):
        assert f"{len(alert_rules())} alerts" in page and "five dashboards" in page
    titles = {board["title"].removeprefix("Gatepost / ") for board in dashboards().values()}
    assert titles == {cells[0] for header, cells in table_rows(deploy) if header[0] == "Dashboard"}, titles


@test
def the_chart_ships_the_alerts_except_those_that_are_disabled():
    values = yaml.safe_load((CHART / "ci/monitoring-values.yaml").read_text())
    rendered = one(render(CHART / "ci/monitoring-values.yaml"), "PrometheusRule")["spec"]["groups"]
    by_name = {rule.get("alert"): rule for group in rendered for rule in group["rules"]}
    rules = alert_rules()
    disabled = set(values["monitoring"]["prometheusRule"]["disabled"])
    assert disabled and by_name.keys() == rules.keys() - disabled | {"GreeterSilent"}, by_name.keys()
    # The text of alerts is Prometheus's, and not evaluated by Helm.
    for name in rules.keys() - disabled:
        assert by_name[name] == rules[name], name
    names = [group["name"] for group in rendered]
    assert len(names) == len(set(names)), names


def dashboards():
    """The dashboards of the chart, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((CHART / "files/dashboards").glob("*.json"))}


def panels_of(dashboard):
    """The panels with data."""
    return [panel for panel in dashboard["panels"] if panel["type"] not in ("row", "text")]


@test
def the_chart_ships_the_dashboards():
    objects = render(CHART / "ci/monitoring-values.yaml")
    shipped = {name: item for (kind, name), item in objects.items() if kind == "ConfigMap" and "-dashboard-" in name}
    boards = dashboards()
    assert boards.keys() == {"overview", "agent", "callers", "sources", "operations"}, boards.keys()
    assert shipped.keys() == {f"gate-gatepost-dashboard-{name}" for name in boards}, shipped.keys()
    for name, board in boards.items():
        item = shipped[f"gate-gatepost-dashboard-{name}"]
        # Legends such as {{agent}} are Grafana's, and not evaluated by Helm.
        assert {key: json.loads(text) for key, text in item["data"].items()} == {f"gatepost-{name}.json": board}, name
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1", name
        assert item["metadata"]["annotations"] == {"grafana_folder": "Gateways"}, name
        assert len(json.dumps(item)) < 200_000, name
    assert not [name for _, name in render(MINIMAL) if "-dashboard-" in name]


@test
def panels_are_complete_and_do_not_overlap():
    uids, titles = set(), set()
    for name, board in dashboards().items():
        uids.add(board["uid"])
        titles.add(board["title"])
        ids = [panel["id"] for panel in board["panels"]]
        assert len(ids) == len(set(ids)), name
        known = {item["name"] for item in board["templating"]["list"]}
        assert known >= {"datasource", "namespace", "job", "instance"}, name
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"]))) - {"__rate_interval", "__field"}
        assert used == known, (name, used ^ known)
        cells = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            taken = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            assert place["x"] + place["w"] <= 24 and not taken & cells, (name, panel["title"])
            cells |= taken
        seen = [panel["title"] for panel in panels_of(board)]
        assert len(seen) > 10, name
        for panel in panels_of(board):
            what = (name, panel["title"])
            assert panel["title"] and panel["description"].endswith("."), what
            assert panel["fieldConfig"]["defaults"]["unit"] and panel["targets"], what
            names = [target["refId"] for target in panel["targets"]]
            assert len(names) == len(set(names)), what
            for target in panel["targets"]:
                query = target["expr"]
                # A rate over a fixed time is empty where it is shorter than two scrapes, and wrong where it is longer than a step.
                assert not re.search(r"\brate\([^\[]*\[(?!\$__rate_interval|30d)", query), (what, query)
                # Each legend is a label that the query keeps, or the same for all of one series.
                for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                    kept = [labels for keyword, labels, _ in groupings(query) if keyword == "by"]
                    assert label in TARGET_LABELS or any(label in labels for labels in kept) or not kept, (what, query)
    assert len(uids) == len(titles) == len(dashboards())
    linked = set(re.findall(r"/d/([\w-]+)", json.dumps(dashboards())))
    assert linked and linked <= uids, linked


def expect_same(before, after, path):
    """Each member of `before` is in `after`."""
    if isinstance(before, dict):
        assert isinstance(after, dict) and before.keys() <= after.keys(), (path, before.keys() - (after or {}).keys())
        for key, value in before.items():
            expect_same(value, after[key], f"{path}/{key}")
    elif isinstance(before, list):
        assert isinstance(after, list) and len(before) == len(after), path
        for number, value in enumerate(before):
            expect_same(value, after[number], f"{path}/{number}")
    else:
        assert before == after, (path, before, after)


@test
def the_models_of_grafana_know_every_member_of_the_dashboards():
    register_default_plugins()
    for name, board in dashboards().items():
        after = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))
        for variable in board["templating"]["list"]:
            # Grafana writes it itself, for its list of variables; its models leave it out.
            variable.pop("definition", None)
        expect_same(board, after, name)


class Gateway:
    """A gateway that runs with the files of a pod, on free ports of loopback."""

    def __init__(self, pod, environment=None):
        self.listener, self.admin, self.health = free_port(), free_port(), free_port()
        overrides = {
            "GATEPOST__LISTENERS__0__ADDRESS": f"127.0.0.1:{self.listener}",
            "GATEPOST__ADMIN__ADDRESS": f"127.0.0.1:{self.admin}",
            "GATEPOST__HEALTH__ADDRESS": f"127.0.0.1:{self.health}",
        }
        environment = pod.environment() | overrides | (environment or {})
        command = [options.gatepost, "run", "--config", pod.config_file()]
        self.log = (pod.root / "log").open("wb")
        self.process = subprocess.Popen(command, env=environment, cwd="/", stdout=self.log, stderr=self.log)

    def __enter__(self):
        self.eventually(lambda: self.page("/readyz")["ready"])
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def eventually(self, condition):
        eventually(condition, lambda: Path(self.log.name).read_text(), self.process)

    def page(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=5) as response:
            return json.load(response)

    def agents(self):
        return sorted(agent["id"] for agent in self.page("/agents")["agents"])


@test
def probes_metrics_and_the_test_of_the_release_reach_the_gateway():
    objects = render(CHART / "ci/monitoring-values.yaml")
    pod = Pod(objects, options.folder / "pod")
    container, monitor = gateway_container(objects), one(objects, "ServiceMonitor")
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert {probe["port"] for probe in probes} | {endpoint["port"]} == {"health"}
    command = one(objects, "Pod")["spec"]["containers"][0]["args"]
    assert command[:2] == ["health", "--url"] and len(command) == 3, command
    assert command[2] == "http://gate-gatepost-health.agents:9902"
    with Gateway(pod) as gateway:
        url = f"http://127.0.0.1:{gateway.health}"
        for probe in probes:
            with urllib.request.urlopen(url + probe["path"], timeout=5) as response:
                assert response.status == 200, probe
        with urllib.request.urlopen(url + endpoint["path"], timeout=5) as response:
            page = response.read().decode()
        assert "\ngatepost_ready 1\n" in page
        # Label values by which alerts select series.
        for series in ('gatepost_source_polls_total{outcome="failure"', 'gatepost_source_polls_total{outcome="rejected"', 'gatepost_agents{state="rejected"}'):
            assert f"\n{series}" in page, series
        run(options.gatepost, *command[:2], url)
    assert run(options.gatepost, *command[:2], url, ok=False).returncode == 1


# A token whose key only its issuer knows.
UNVERIFIABLE_TOKEN = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (b'{"alg":"ES256","kid":"1","typ":"at+jwt"}', b'{"iss":"https://login.example.com","aud":"a","sub":"b","exp":4102444800}', bytes(range(64)))
)


def all_queries():
    """Every query of alerts, dashboards, runbooks and questions, with what it belongs to."""
    queries = [(name, rule["expr"]) for name, rule in alert_rules().items()]
    for board in dashboards().values():
        queries += queries_of_dashboard(board)
    for page in ("runbooks", "questions"):
        queries += queries_of_page(f"docs/{page}.md", (REPOSITORY / f"docs/{page}.md").read_text())
    assert len(queries) > 200, len(queries)
    return queries


def documented_metrics():
    path = REPOSITORY / "docs/metrics.md"
    codes = (REPOSITORY / "docs/errors.md").read_text()
    assert path.exists(), "docs/metrics.md is missing"
    # Codes are values of a label as well, and ok and aborted.
    metrics = Metrics(f"{path.read_text()}\n{codes}")
    assert len(metrics.labels) > 50, metrics.labels
    return metrics


@test
def queries_name_metrics_labels_and_values_that_exist():
    queries, metrics = all_queries(), documented_metrics()
    rules = options.folder / "rules.json"
    rules.write_text(recording_rules(queries))
    run("promtool", "check", "rules", rules)
    problems = [f"{what}: {problem}" for what, query in queries for problem in metrics.problems(query)]
    assert not problems, "\n".join(problems)
    # The test itself notices a name that does not exist.
    for query in [
        "gatepost_cals_total",
        'gatepost_calls_total{agents="a"}',
        'gatepost_calls_total{blame="agents"}',
        'gatepost_calls_total{blame=~"agent|gatway"}',
        "sum by (source) (rate(gatepost_calls_total[5m]))",
        "sum(rate(gatepost_calls_total[5m])) by (agents)",
        "gatepost_ready and on (listener) gatepost_draining",
    ]:
        assert list(metrics.problems(query)), query


@test
def every_query_of_panels_and_pages_has_a_result_where_all_metrics_have_series():
    queries, metrics = all_queries(), documented_metrics()
    targets = SyntheticPage.start(metrics, [query for _, query in queries])
    with Prometheus(options.folder / "prometheus", targets) as prometheus:
        # Labels that match many series on both sides are an error only where these exist.
        results = {query: prometheus.query(query) for _, query in queries}
    empty = [(what, query) for what, query in queries if not results[query] and not is_filter(re.sub(r"> 0(?![.0-9])", "", query))]
    assert not empty, empty
    print(f"{len(results)} queries, {sum(map(bool, results.values()))} with a result")


@test
def forty_questions_have_an_answer():
    rows = [cells for header, cells in table_rows((REPOSITORY / "docs/questions.md").read_text()) if header == ["#", "Question", "Answer"]]
    assert [cells[0] for cells in rows] == [str(number) for number in range(1, 41)], rows
    assert len({cells[1] for cells in rows}) == 40 and all(cells[1].endswith("?") for cells in rows)
    logs = (REPOSITORY / "docs/operations.md").read_text().split("**Access log.**")[1].split("\n## ")[0]
    (example,) = re.findall(r"(?s)```json\n(.*?)```", logs)
    fields = set(re.findall(r"`(\w+)`", logs)) | json.loads(example).keys()
    answered = {what for what, _ in queries_of_page("", "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in [["#"]] + rows))}
    for _, question, answer in rows:
        if f", {question}" in answered:
            continue
        # Members of an entry that jq selects, or of the object that it makes.
        assert answer.startswith("access log: `jq "), question
        used = set(re.findall(r"\.(\w+)", answer)) | set(re.findall(r"\w+", "".join(re.findall(r"\{(.*?)\}", answer))))
        assert used and used <= fields, (question, used - fields)


@test
def every_query_runs_in_prometheus_on_a_running_gateway():
    queries = all_queries()
    pod, tls_port = Pod(render(monitored_values()), options.folder / "pod"), free_port()
    with Gateway(pod, {"GATEPOST__LISTENERS__1__ADDRESS": f"127.0.0.1:{tls_port}"}) as gateway:
        url, tls_url = f"http://127.0.0.1:{gateway.listener}/agents", f"https://127.0.0.1:{tls_port}/agents"
        key = (options.folder / "provided/key").read_text()
        with Prometheus(options.folder / "prometheus", [f"127.0.0.1:{gateway.health}"]) as prometheus:
            for target, headers, status in [
                (f"{url}/a/invoke", {"X-API-Key": key}, 200),
                (f"{tls_url}/a/invoke", {"X-API-Key": key}, 200),
                (f"{url}/a/invoke", {"X-API-Key": key, "Prefer": "respond-async"}, 202),
                (f"{url}/a/invoke", {}, 401),
                (f"{url}/a/invoke", {"Authorization": f"Bearer {UNVERIFIABLE_TOKEN}"}, 503),
                (f"{url}/away/invoke", {"X-API-Key": key}, 503),
                (f"{url}/broker/invoke", {"X-API-Key": key}, 503),
                (f"{url}/unknown/invoke", {"X-API-Key": key}, 404),
            ]:
                found = status_of(target, headers)
                assert found == status, (target, headers, status, found)
            seen = 'sum(gatepost_calls_total{code="NotFound"}) >= 1 and sum(count_over_time(gatepost_ready[1m])) > 6'
            eventually(lambda: prometheus.query(seen), lambda: seen)
            with urllib.request.urlopen(f"http://127.0.0.1:{gateway.health}/metrics", timeout=5) as response:
                page = labels_on_page(response.read().decode())
            results = {query: prometheus.query(query) for _, query in queries}
            parts = {selector_text(*part) for _, query in queries for part in selectors(query)}
            present = {part for part in parts if prometheus.query(part)}
    # A query whose metrics have series has a result.
    for what, query in queries:
        has_series = {selector_text(*part) for part in selectors(query)} <= present
        assert results[query] or is_filter(query) or not has_series, (what, query)
    # The gateway has each metric with the labels that the documentation gives it.
    metrics = documented_metrics()
    for name, labels in page.items():
        assert labels == metrics.labels.get(name), (name, labels, metrics.labels.get(name))
    print(f"{len(queries)} queries, {sum(map(bool, results.values()))} with a result; without a series: {', '.join(sorted(metrics.labels.keys() - page.keys()))}")


def monitored_values():
    """A gateway with TLS, tasks, a registry, keys and tokens; with an agent that answers, and one at a server and one at a
    broker that do not, as does the issuer of tokens."""
    agent = lambda id, endpoint: {"id": id, "name": id, "endpoint": endpoint, "authentication": {"type": "api_key"}}
    documents = {
        "a": agent("a", f"http://127.0.0.1:{SlowAgent.start()}/"),
        "away": agent("away", f"http://127.0.0.1:{free_port()}/"),
        "broker": agent("broker", f"mqtt://127.0.0.1:{free_port()}/control/agents/broker/input"),
    }
    issuer = {"issuer": "https://login.example.com", "label": "login", "audience": ["a"], "algorithms": ["ES256"], "jwks_url": f"https://127.0.0.1:{free_port()}/keys"}
    tls = {"certificate": "tls/server.pem", "key": "tls/server.key", "client_ca": "tls/clients.pem"}
    config = {
        "listeners": [{"address": "0.0.0.0:8080", "allow_plaintext": True}, {"address": "0.0.0.0:8443", "tls": tls}],
        "network": {"allowed_addresses": ["127.0.0.0/8"]},
        "auth": {"mtls": {}, "api_keys": {"files": ["keys.jsonl"]}, "bearer": {"issuers": [issuer]}},
        "access": {"grants": [{"callers": ["*"], "agents": ["*"]}]},
        "registry": {},
        "tasks": {},
    }
    files = ["keys.jsonl", "tls/server.pem", "tls/server.key", "tls/clients.pem"]
    secrets = [{"secret": "files", "items": {file.replace("/", "-"): file for file in files}}]
    return merged(MINIMAL, {"documents": documents, "config": config, "persistence": {"enabled": True}, "secretFiles": secrets})


def status_of(url, headers):
    """The status of a call. The certificate of a listener is not checked."""
    request = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"} | headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=ssl._create_unverified_context()) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


class SlowAgent(Agent):
    def respond(self, body):
        time.sleep(0.2)
        return b"{}"


# How long nodes go on sending connections to a pod that is being removed.
PROPAGATION_SECONDS = 1.5


def replace_two_pods_under_load(values, folder):
    """Replaces two pods as a Deployment does, while callers call. A new connection for each call goes to one of the
    endpoints as nodes know them. Returns how many calls succeeded, and the failures."""
    endpoints, failures, successes, stop = [], [], [], threading.Event()

    def call_on():
        while not stop.is_set():
            endpoint = random.choice(endpoints)
            url = f"http://127.0.0.1:{endpoint.listener}/agents/a/invoke"
            request = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    successes.append(response.status)
            except OSError as failure:
                failures.append(str(failure))

    def start(number):
        gateway = Gateway(Pod(render(values), folder / f"pod-{number}"))
        gateway.__enter__()
        return gateway

    gateways = [start(0), start(1)]
    try:
        endpoints[:] = gateways
        callers = [threading.Thread(target=call_on, daemon=True) for _ in range(8)]
        for caller in callers:
            caller.start()
        for number in (0, 1):
            # maxUnavailable 0: a new pod is ready before an old one ends.
            gateways.append(start(number + 2))
            endpoints[:] = gateways[number:]
            old = gateways[number]
            old.process.terminate()
            time.sleep(PROPAGATION_SECONDS)
            endpoints[:] = gateways[number + 1 :]
            assert old.process.wait(timeout=60) == 0
        stop.set()
        for caller in callers:
            caller.join(timeout=60)
    finally:
        stop.set()
        for gateway in gateways:
            gateway.__exit__()
    return len(successes), failures


@test
def no_call_fails_while_pods_are_replaced():
    document = {"endpoint": f"http://127.0.0.1:{SlowAgent.start()}/", "authentication": {"type": "none"}}
    config = {"network": {"allowed_addresses": ["127.0.0.0/8"]}, "access": {"grants": [{"callers": ["anonymous"], "agents": ["*"]}]}}
    values = merged(MINIMAL, {"documents": {"a": document}, "config": config})
    count, failures = replace_two_pods_under_load(values, options.folder / "default")
    assert count > 100 and not failures, (count, failures)
    print(f"{count} calls succeeded while two pods were replaced, and none failed")
    # The delay of the chart is why: without it, nodes send callers to a listener that is closed.
    hasty = merged(values, {"config": {"shutdown": {"listener_close_delay": "0s"}}})
    count, failures = replace_two_pods_under_load(hasty, options.folder / "hasty")
    assert failures, count


@test
def a_changed_configmap_takes_effect_without_a_restart():
    values = merged(MINIMAL, {"secretFiles": [{"secret": "keys", "items": {"keys.jsonl": "keys.jsonl"}}], "config": {"auth": {"api_keys": {"files": ["keys.jsonl"]}}}})
    pod = Pod(render(values), options.folder / "pod")
    with Gateway(pod) as gateway:
        assert gateway.agents() == ["a"], (gateway.page("/agents"), Path(gateway.log.name).read_text())
        more = merged(values, {"documents": {"b": {"id": "b", "name": "B", "endpoint": "https://b.example.com/"}}})
        pod.update(render(more))
        gateway.eventually(lambda: gateway.agents() == ["a", "b"])
        # Each document is read once, although the volume has it under two paths.
        assert gateway.page("/readyz")["rejected"] == 0, gateway.page("/agents")
        pod.update(render(merged(more, {"config": {"agents": {"sources": ["/nowhere"]}}})))
        gateway.eventually(lambda: gateway.page("/readyz")["config"] != "ok")
        pod.update(render(values))
        gateway.eventually(lambda: gateway.agents() == ["a"] and gateway.page("/readyz")["config"] == "ok")


def print_custom_resources():
    """Prints the custom resources of all value files, which tests/custom_resources validates."""
    objects = [item for values in VALUES for item in render(values).values()]
    print(json.dumps([item for item in objects if item["kind"] in CUSTOM_KINDS]))


def main():
    global options
    parser = argparse.ArgumentParser()
    commands = TESTS | {"print_custom_resources": print_custom_resources}
    parser.add_argument("test", choices=[*commands, "all"])
    parser.add_argument("--helm", type=Path, required=True)
    parser.add_argument("--gatepost", type=Path, required=True)
    options = parser.parse_args()
    for name in TESTS if options.test == "all" else [options.test]:
        with tempfile.TemporaryDirectory() as folder:
            options.folder = Path(folder)
            print(name, file=sys.stderr)
            commands[name]()


main()
