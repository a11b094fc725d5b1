"""validate.py DIR…: are these manifests what Kubernetes, KEDA and the prometheus-operator take?

Built-in kinds are held against the published schemas that the package kubernetes-validate carries, of
the oldest and the newest version of Kubernetes that we mean; nothing that a schema does not name may
be there. Other kinds are held against crds/. Then what no schema says: that the deployment gives the
daemon the time that its configuration may take to stop, and that what refers to something finds it.
Prints every problem with its file and ends with 1 if there is one.
"""

import copy
import json
import pathlib
import re
import sys
import tomllib

import jsonschema
import kubernetes_validate
import yaml

VERSIONS = ["1.29", kubernetes_validate.latest_version()]
CRDS = pathlib.Path(__file__).parent / "crds"
# What the daemon may take beyond its own timeouts to write its last settlements.
SECONDS_FOR_SETTLEMENTS = 10
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def custom_schemas():
    schemas = {}
    for path in CRDS.glob("*.json"):
        held = json.loads(path.read_text())
        if "schema" in held:
            schemas[held["apiVersion"], held["kind"]] = closed(held["schema"])
    return schemas


def closed(schema):
    """The schema, in which an object may hold nothing that is not named."""
    schema = copy.copy(schema)
    if schema.pop("x-kubernetes-int-or-string", None):
        return {"type": ["integer", "string"]}
    unknown = schema.pop("x-kubernetes-preserve-unknown-fields", False)
    if "properties" in schema:
        schema["properties"] = {name: closed(of) for name, of in schema["properties"].items()}
        if not unknown:
            schema.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = closed(schema[key])
    return schema


def by_schema(manifest, custom):
    known = custom.get((manifest["apiVersion"], manifest["kind"]))
    if known is not None:
        validator = jsonschema.Draft202012Validator(with_open_metadata(known))
        for error in validator.iter_errors(manifest):
            yield f"{'.'.join(map(str, error.path))}: {error.message}"
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"Kubernetes {version}: {'.'.join(map(str, error.path))}: {error.message}"
        except kubernetes_validate.SchemaNotFoundError as error:
            yield f"Kubernetes {version}: {error.message}"


def with_open_metadata(schema):
    """What `metadata` holds Kubernetes itself says."""
    properties = schema["properties"] | {"metadata": {"type": "object"}}
    return schema | {"properties": properties}


def triggers(manifests):
    known = json.loads((CRDS / "triggers.json").read_text())
    for manifest in of_kind(manifests, "ScaledObject"):
        for trigger in manifest["spec"]["triggers"]:
            names = known.get(trigger["type"])
            if names is None:
                yield manifest, f"no trigger that is known here: {trigger['type']}"
                continue
            for name, value in trigger["metadata"].items():
                if name not in names:
                    yield manifest, f"the trigger {trigger['type']} has no {name}"
                if not isinstance(value, str):
                    yield manifest, f"{name} must be a text: {value!r}"


def of_kind(manifests, kind):
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def references(manifests):
    there = {(it["kind"], it["metadata"]["name"]) for it in manifests}
    for manifest in manifests:
        for kind, name in referred(manifest):
            if (kind, name) not in there:
                yield manifest, f"there is no {kind} {name}"


def referred(manifest):
    spec = manifest.get("spec", {})
    if manifest["kind"] == "Deployment":
        for volume in spec["template"]["spec"]["volumes"]:
            if "configMap" in volume:
                yield "ConfigMap", volume["configMap"]["name"]
            if "secret" in volume:
                yield "Secret", volume["secret"]["secretName"]
    if manifest["kind"] == "ScaledObject":
        yield "Deployment", spec["scaleTargetRef"]["name"]
        for trigger in spec["triggers"]:
            if "authenticationRef" in trigger:
                yield "TriggerAuthentication", trigger["authenticationRef"]["name"]
    if manifest["kind"] == "TriggerAuthentication":
        for target in spec["secretTargetRef"]:
            yield "Secret", target["name"]


def selectors(manifests):
    """Whoever selects pods or services by labels selects something."""
    pods = [it["spec"]["template"]["metadata"]["labels"] for it in of_kind(manifests, "Deployment")]
    services = [it["metadata"]["labels"] for it in of_kind(manifests, "Service")]
    for manifest in manifests:
        spec = manifest.get("spec", {})
        selector = spec.get("selector", spec.get("podSelector"))
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        among = services if manifest["kind"] == "ServiceMonitor" else pods
        if not any(wanted.items() <= labels.items() for labels in among):
            yield manifest, f"it selects nothing: {wanted}"


def seconds(duration):
    parts = re.findall(r"(\d+)(ms|s|m|h)\b", duration)
    return sum(int(number) * UNITS[unit] for number, unit in parts)


def time_to_stop(manifests):
    """The grace covers what the configuration allows for, and the hook before it."""
    maps = {it["metadata"]["name"]: it["data"] for it in of_kind(manifests, "ConfigMap")}
    for deployment in of_kind(manifests, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        names = [it["configMap"]["name"] for it in pod["volumes"] if "configMap" in it]
        for name in names:
            config = tomllib.loads(maps[name]["ganger.toml"])
            drain = seconds(config.get("daemon", {}).get("drain_timeout", "30s"))
            stop = max(seconds(pool.get("stop_timeout", "5s")) for pool in config["pools"])
            needed = seconds_before(pod) + drain + 3 * stop + SECONDS_FOR_SETTLEMENTS
            given = pod.get("terminationGracePeriodSeconds", 30)
            if given <= needed:
                yield deployment, f"{given} s of grace, but stopping may take {needed} s"


def seconds_before(pod):
    """How long the hooks take that come before SIGTERM."""
    hooks = [it.get("lifecycle", {}).get("preStop", {}) for it in pod["containers"]]
    commands = [hook["exec"]["command"] for hook in hooks if "exec" in hook]
    return max((int(words[1]) for words in commands if words[0] == "sleep"), default=0)


def probes(manifests):
    """Probes and monitors name ports that are there, and the daemon listens on them."""
    listens = [
        tomllib.loads(it["data"]["ganger.toml"]).get("telemetry", {}).get("listen", "")
        for it in of_kind(manifests, "ConfigMap")
    ]
    ports = {}
    for deployment in of_kind(manifests, "Deployment"):
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            ports |= {it["name"]: it["containerPort"] for it in container.get("ports", [])}
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                if kind not in container:
                    yield deployment, f"{container['name']} has no {kind}"
                elif container[kind]["httpGet"]["port"] not in ports:
                    yield deployment, f"the {kind} asks a port that is not there"
        for name, port in ports.items():
            if f"0.0.0.0:{port}" not in listens:
                yield deployment, f"nothing listens on port {name}, {port}"
    services = {port["name"] for it in of_kind(manifests, "Service") for port in it["spec"]["ports"]}
    for service in of_kind(manifests, "Service"):
        for port in service["spec"]["ports"]:
            if port["targetPort"] not in ports:
                yield service, f"no container has a port {port['targetPort']}"
    for monitor in of_kind(manifests, "ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            if endpoint["port"] not in services:
                yield monitor, f"no service has a port {endpoint['port']}"


def policies(manifests):
    """A policy lets in what listens, and lets the pods ask for names."""
    ports = {
        port["name"]
        for deployment in of_kind(manifests, "Deployment")
        for container in deployment["spec"]["template"]["spec"]["containers"]
        for port in container.get("ports", [])
    }
    for policy in of_kind(manifests, "NetworkPolicy"):
        let_in = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
        for port in let_in:
            if port not in ports:
                yield policy, f"no container has a port {port}"
        let_out = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
        if 53 not in let_out:
            yield policy, "no name can be looked up"


def reloads(manifests):
    """A changed ConfigMap reaches the daemon: as a directory, which is renewed, and watched."""
    for deployment in of_kind(manifests, "Deployment"):
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            if "--watch" not in container["args"]:
                yield deployment, f"{container['name']} does not watch its configuration"
            for mount in container["volumeMounts"]:
                if "subPath" in mount:
                    yield deployment, f"{mount['mountPath']} would stay as it is: a subPath is not renewed"


def confined(manifests):
    for deployment in of_kind(manifests, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        if not pod.get("securityContext", {}).get("runAsNonRoot"):
            yield deployment, "it may run as root"
        for container in pod["containers"]:
            own = container.get("securityContext", {})
            if not own.get("readOnlyRootFilesystem") or own.get("allowPrivilegeEscalation", True):
                yield deployment, f"{container['name']}: its file system may be written, or it may gain rights"
            writable = [it["mountPath"] for it in container["volumeMounts"] if not it.get("readOnly")]
            if "/tmp" not in writable:
                yield deployment, "the workers' pipes have no place: /tmp can't be written"


def problems(directory):
    held = []
    custom = custom_schemas()
    for path in sorted(pathlib.Path(directory).glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            held.append((path, manifest))
            for problem in by_schema(manifest, custom):
                yield path, manifest, problem
    if not held:
        yield directory, {}, "there is no manifest"
        return
    manifests = [manifest for _, manifest in held]
    paths = {id(manifest): path for path, manifest in held}
    checks = (triggers, references, selectors, time_to_stop, probes, policies, reloads, confined)
    for check in checks:
        for manifest, problem in check(manifests):
            yield paths[id(manifest)], manifest, problem


def main():
    found = [it for directory in sys.argv[1:] for it in problems(directory)]
    for path, manifest, problem in found:
        print(f"{path}: {manifest.get('kind', '?')}: {problem}")
    sys.exit(1 if found else 0)


main()
