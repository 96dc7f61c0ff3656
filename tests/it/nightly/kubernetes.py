"""Checks deploy/kubernetes without a cluster.

    python3 -m venv VENV && VENV/bin/pip install kubernetes-validate==1.37.0
    VENV/bin/python tests/it/nightly/kubernetes.py target/debug/delayd

It resolves the kustomizations itself. If kubectl is installed, its output must be the same.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy/kubernetes"
DELAYD = str(Path(sys.argv[1]).resolve())
IMAGE = (ROOT / "Dockerfile").read_text()
ENV = dict(re.findall(r"(DELAYD__\w+)=(\S+)", IMAGE))
PORT = int(re.search(r"^EXPOSE (\d+)$", IMAGE, re.M)[1])
USER = int(re.search(r"^USER (\d+):\1$", IMAGE, re.M)[1])
LABEL = {"app.kubernetes.io/name": "delayd"}
# The newest version that the package has, and the oldest that the page names.
VERSIONS = ("1.37", "1.29")
COLUMNS = 100


def resolved(folder):
    """The objects of a kustomization, with its generators and without its images."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    objects = []
    for name in kustomization["resources"]:
        path = folder / name
        if path.is_dir():
            objects += resolved(path)
        else:
            objects.append(yaml.safe_load(path.read_text()))
    for kind in ("ConfigMap", "Secret"):
        for entry in kustomization.get(kind[0].lower() + kind[1:] + "Generator", []):
            data = {name: (folder / name).read_text() for name in entry.get("files", [])}
            for name in entry.get("envs", []):
                lines = (folder / name).read_text().splitlines()
                data.update(line.split("=", 1) for line in lines if not line.startswith("#"))
            body = {"data" if kind == "ConfigMap" else "stringData": data}
            metadata = {"name": entry["name"]}
            objects.append({"apiVersion": "v1", "kind": kind, "metadata": metadata, **body})
    for thing in objects:
        if thing["kind"] != "Namespace" and "namespace" in kustomization:
            thing["metadata"]["namespace"] = kustomization["namespace"]
    return objects


def check_schemas(objects):
    for thing in objects:
        if thing["apiVersion"].startswith("monitoring.coreos.com/"):
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(thing, version, strict=True)


def check_kubectl(folder, objects):
    """kubectl knows the same objects."""
    if shutil.which("kubectl") is None:
        return
    run = ["kubectl", "kustomize", str(folder)]
    output = subprocess.run(run, check=True, capture_output=True, text=True).stdout

    def names(things):
        return sorted((x["kind"], x["metadata"]["name"], x["metadata"].get("namespace", ""))
                      for x in things)

    assert names(yaml.safe_load_all(output)) == names(objects), folder


def delayd(arguments, files, env=ENV):
    """Runs `delayd check --offline` with these files. Returns its exit code and its output."""
    with tempfile.TemporaryDirectory() as folder:
        words = [DELAYD, "check", "--offline", *arguments]
        for name, text in files.items():
            path = Path(folder) / name
            path.write_text(text)
            words += ["--config", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env})
        return done.returncode, done.stdout + done.stderr


def check_configuration(config, secrets):
    """The files are valid once the tokens are replaced. Before, and without tokens, delayd refuses
    them. Returns the seconds of shutdown.delay and shutdown.grace."""
    code, said = delayd([], {**config, **secrets})
    assert code == 78 and "token_sha256" in said, said
    code, said = delayd([], config)
    assert code == 78 and "expected a token" in said, said
    for name, text in secrets.items():
        assert "anonymous" not in text
        count = 0
        while '"replace-me"' in text:
            count += 1
            digest = hashlib.sha256(str(count).encode()).hexdigest()
            text = text.replace('"replace-me"', f'"{digest}"', 1)
        replaced = {name: text}
    code, said = delayd([], {**config, **replaced})
    assert code == 0 and f"0.0.0.0:{PORT}, tokens: {count}" in said, said
    view_all = re.search(r'name = "prometheus"\n.*\nscopes = \["view"\]\ntopics = \["\*"\]', text)
    assert view_all, "Prometheus needs a token for all topics"

    def seconds(key):
        texts = [config["delayd.toml"], (ROOT / "config/default.toml").read_text()]
        for toml in texts:
            section = re.search(r"^\[shutdown\]\n(.*?)(^\[|\Z)", toml, re.M | re.S)
            found = section and re.search(rf'^{key} = "(\d+)s"', section[1], re.M)
            if found:
                return int(found[1])
        raise AssertionError(key)

    return seconds("delay"), seconds("grace")


def check_pod(pod, delay, grace):
    # The documentation asks for 10 s more than the drain is allowed to take.
    assert pod["terminationGracePeriodSeconds"] >= delay + grace + 10
    assert pod["automountServiceAccountToken"] is False
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"] == USER
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    security = container["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["image"] == "delayd"
    assert container["resources"]["limits"]["memory"]
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    routes = (ROOT / "docs/API.md").read_text()
    probes = {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    for probe, path in probes.items():
        assert f"GET {path} " in routes
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "http"}, probe
    # All files of the ConfigMap and the Secret are named, and no other.
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    configs = [f"{mounts['config']}/{name}" for name in ("delayd.toml", "secrets.toml")]
    assert container["args"] == ["serve", "--config", configs[0], "--config", configs[1]]
    assert all("subPath" not in mount for mount in container["volumeMounts"])
    return mounts


def check_variant(name):
    folder = FOLDER / name
    objects = resolved(folder)
    check_schemas(objects)
    check_kubectl(folder, objects)
    by = {(x["kind"], x["metadata"]["name"]): x for x in objects}
    assert len(by) == len(objects)
    config = by["ConfigMap", "delayd"]["data"]
    secrets = by["Secret", "delayd"]["stringData"]
    assert f'kind = "{name}"' in config["delayd.toml"]
    delay, grace = check_configuration(config, secrets)

    kind = {"redis": "Deployment", "embedded": "StatefulSet"}[name]
    spec = by[kind, "delayd"]["spec"]
    mounts = check_pod(spec["template"]["spec"], delay, grace)
    for selected in (spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"],
                     by["Service", "delayd"]["spec"]["selector"],
                     by["NetworkPolicy", "delayd"]["spec"]["podSelector"]["matchLabels"]):
        assert selected == LABEL
    [port] = by["Service", "delayd"]["spec"]["ports"]
    assert port == {"name": "http", "port": PORT, "targetPort": "http"}
    namespace = by["Namespace", "delayd"]["metadata"]["labels"]
    assert namespace["pod-security.kubernetes.io/enforce"] == "restricted"

    if name == "redis":
        budget = by["PodDisruptionBudget", "delayd"]["spec"]
        assert budget["minAvailable"] < spec["replicas"], "a drain of a node would wait for ever"
        assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        assert delay > 0, "load balancers need time"
    else:
        assert spec["replicas"] == 1
        [claim] = spec["volumeClaimTemplates"]
        assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
        database = ENV["DELAYD__STORE__EMBEDDED__PATH"]
        assert database.startswith(mounts[claim["metadata"]["name"]] + "/")
        assert not any(kind == "PodDisruptionBudget" for kind, _ in by)
    return by["Service", "delayd"]


def check_monitoring(service):
    objects = resolved(FOLDER / "monitoring")
    check_schemas(objects)
    check_kubectl(FOLDER / "monitoring", objects)
    by = {x["kind"]: x for x in objects}
    monitor = by["ServiceMonitor"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert set(monitor["spec"]) == {"jobLabel", "selector", "endpoints"}
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    labels = service["metadata"]["labels"]
    # The alerts expect this job.
    assert labels[monitor["spec"]["jobLabel"]] == "delayd"
    assert monitor["spec"]["selector"]["matchLabels"] == labels
    [endpoint] = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    credentials = endpoint["authorization"]["credentials"]
    assert credentials["name"] == by["Secret"]["metadata"]["name"]
    assert credentials["key"] in by["Secret"]["stringData"]


def main():
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file():
            long = [line for line in path.read_text().splitlines() if len(line) > COLUMNS]
            assert not long, (path, long)
            if path.suffix == ".yaml":
                assert len(list(yaml.safe_load_all(path.read_text()))) == 1, path
    for folder in FOLDER.iterdir():
        # Every file is used. maintenance.yaml is a patch for kubectl.
        listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
        there = {path.name for path in folder.glob("*.yaml")}
        there -= {"kustomization.yaml", "maintenance.yaml"}
        assert there == {name for name in listed if name.endswith(".yaml")}, folder
    services = [check_variant(name) for name in ("redis", "embedded")]
    assert services[0] == services[1]
    check_monitoring(services[0])
    print("deploy/kubernetes: ok")


main()
