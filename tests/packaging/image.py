"""Tests the root file system of the container image: `image.py --gatepost PROGRAM`.

config/image/assemble makes it, and the gateway runs from it as a container does: as another user, without capabilities,
with a root that is read-only except for /var/lib/gatepost and /tmp. It needs util-linux, binutils and python3, and the
right to create user namespaces, but not root.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests"))
from script_support import Agent, eventually, free_port, run

ASSEMBLE = REPOSITORY / "config/image/assemble"
USER = "65532"


def is_root():
    return os.getuid() == 0


def contained(root, volumes, arguments):
    """A command line that runs the image's entry point with `arguments`. `volumes` are folders by their place."""
    binds = "\n".join(f"mount --rbind {source} {root}{target}" for target, source in volumes.items())
    # Root becomes the image's user; another user becomes it in a namespace of its own.
    user = f"--setgid={USER} --setuid={USER}" if is_root() else f"--user --map-user={USER} --map-group={USER}"
    script = f"""
        set -eu
        mount --rbind {root} {root}
        {binds}
        mount -t tmpfs -o mode=1777 tmpfs {root}/tmp
        mount --rbind /proc {root}/proc
        mount --rbind /dev {root}/dev
        mount -o remount,bind,ro {root}
        mount -o remount,bind,ro {root}/etc/gatepost
        exec unshare {user} --root={root} --wd=/var/lib/gatepost /usr/bin/gatepost "$@"
    """
    namespaces = ["--mount"] if is_root() else ["--user", "--map-root-user", "--mount"]
    return ["unshare", *namespaces, "--propagation", "private", "sh", "-c", script, "gatepost", *arguments]


class ReadyAgent(Agent):
    def respond(self, body):
        return b'{"ok":   true}'


def files_below(root):
    return {str(path.relative_to(root)): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in root.rglob("*")}


def expect_contents(root):
    executables = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and os.access(path, os.X_OK)}
    assert {path for path in executables if ".so" not in path} == {"usr/bin/gatepost"}, executables
    assert not [path for path in root.rglob("*") if path.lstat().st_mode & 0o6000], "a file has set-user-ID"
    sections = run("objdump", "-h", root / "usr/bin/gatepost").stdout
    assert ".debug_info" not in sections and ".symtab" not in sections, "the binary is not stripped"
    assert "BEGIN CERTIFICATE" in (root / "etc/ssl/certs/ca-certificates.crt").read_text()


def expect_dockerfile_matches(root):
    """The Dockerfile runs the same script, and names what the image has."""
    text = (REPOSITORY / "Dockerfile").read_text()
    assert 'config/image/assemble "${BINARY}" /image' in text and "COPY --from=build /image/ /" in text
    assert f"USER {USER}:{USER}" in text and f"gatepost:x:{USER}:{USER}:" in (root / "etc/passwd").read_text()
    version = re.search(r'(?m)^version = "(.*)"$', (REPOSITORY / "Cargo.toml").read_text())[1]
    assert f"ARG VERSION={version}\n" in text, "ARG VERSION of the Dockerfile is not that of Cargo.toml"
    built = re.search(r"(?m)^ARG BINARY=(.*)$", text)[1]
    assert 'ARG COMMAND="make release"\n' in text and built == "target/pgo/gatepost"
    (entry,) = re.findall(r"(?m)^ENTRYPOINT (\[.*\])$", text)
    (arguments,) = re.findall(r"(?m)^CMD (\[.*\])$", text)
    assert json.loads(entry) == ["/usr/bin/gatepost"]
    (health,) = re.findall(r"(?m)^HEALTHCHECK (?:.*\\\n)* *CMD (\[.*\])$", text)
    # Neither needs a shell, which the image does not have.
    return json.loads(arguments), json.loads(health)[1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gatepost", type=Path, required=True)
    gatepost = parser.parse_args().gatepost.resolve()
    if not is_root() and run("unshare", "--user", "true", ok=False).returncode != 0:
        return print("image: not tested, because this user may not create user namespaces")
    folder = Path(tempfile.mkdtemp(prefix="gatepost-image-"))
    process = None
    try:
        root, config, state = folder / "root", folder / "config", folder / "state"
        run(ASSEMBLE, gatepost, root)
        assert run(ASSEMBLE, gatepost, root, ok=False).returncode == 1, "a folder with files is refused"
        expect_contents(root)
        arguments, health = expect_dockerfile_matches(root)
        (config / "agents").mkdir(parents=True)
        state.mkdir()
        folder.chmod(0o755)
        if is_root():
            os.chown(state, int(USER), int(USER))
        # The runtime of containers provides these two.
        (root / "etc/hosts").write_text("127.0.0.1 localhost agent.test\n")
        (root / "etc/resolv.conf").write_text("")
        listener, admin = free_port(), free_port()
        settings = {
            "listeners": [{"address": f"127.0.0.1:{listener}"}],
            "admin": {"address": f"127.0.0.1:{admin}"},
            "health": {"address": f"127.0.0.1:{free_port()}"},
            "agents": {"sources": ["agents"], "last_known_good": "/var/lib/gatepost/last-known-good", "defaults": {"allow_plaintext": True}},
            "network": {"allowed_addresses": ["127.0.0.0/8"]},
            "auth": {"api_keys": {"files": ["keys.jsonl"]}},
            "access": {"grants": [{"callers": ["key:*"], "agents": ["*"]}]},
            "registry": {"sqlite_file": "/var/lib/gatepost/gatepost.db"},
        }
        (config / "gatepost.yaml").write_text(json.dumps(settings))
        # By a name, which the libraries of the image resolve.
        document = {"id": "greeter", "name": "Greeter", "endpoint": f"http://agent.test:{ReadyAgent.start()}/", "authentication": {"type": "api_key"}}
        (config / "agents/greeter.yaml").write_text(json.dumps(document))
        key = run(gatepost, "key", "new", "--file", config / "keys.jsonl", "--caller", "team-a").stdout.strip()
        (config / "keys.jsonl").chmod(0o644)
        before = files_below(root), files_below(config)
        volumes = {"/etc/gatepost": config, "/var/lib/gatepost": state}

        check = run(*contained(root, volumes, ["check", "-c", "/etc/gatepost/gatepost.yaml"]), env={})
        assert "valid, 1 agent" in check.stdout, (check.stdout, check.stderr)
        log = (folder / "log").open("wb")
        process = subprocess.Popen(contained(root, volumes, arguments), stdout=log, stderr=log, env={"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"})
        request = urllib.request.Request(f"http://127.0.0.1:{listener}/agents/greeter/invoke", b"{}", {"X-API-Key": key, "Content-Type": "application/json"})

        def is_answered():
            try:
                with urllib.request.urlopen(request, timeout=20) as response:
                    return response.status == 200 and json.load(response) == {"ok": True}
            except urllib.error.HTTPError as failed:
                raise AssertionError((failed.read(), (folder / "log").read_text())) from failed

        eventually(is_answered, lambda: (folder / "log").read_text(), process)
        status = Path(f"/proc/{process.pid}/status").read_text()
        # The programs that prepared it were replaced by the gateway.
        assert "Name:\tgatepost\n" in status and not re.search(r"(?m)^Uid:\s+0\s", status), status
        assert re.search(r"(?m)^CapEff:\s+0+$", status) and re.search(r"(?m)^CapPrm:\s+0+$", status), status
        mounts = Path(f"/proc/{process.pid}/mountinfo").read_text()
        (options,) = [line.split()[5] for line in mounts.splitlines() if line.split()[4] == "/"]
        assert "ro" in options.split(","), mounts
        run(*contained(root, volumes, health), env={})
        process.terminate()
        assert process.wait(timeout=60) == 0, (folder / "log").read_text()
        assert run(*contained(root, volumes, health), env={}, ok=False).returncode == 1
        assert (files_below(root), files_below(config)) == before, "the gateway wrote beside its volumes"
        assert (state / "gatepost.db").exists() and (state / "last-known-good").exists(), list(state.iterdir())
        print(f"image: {sum(path.lstat().st_size for path in root.rglob('*') if path.is_file()) >> 20} MiB, with this binary")
    finally:
        if process and process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(folder)


main()
