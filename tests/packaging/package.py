"""Tests of the Debian package and of the systemd unit in it: `package.py --gatepost PROGRAM`.

On a copy of this machine, the package is installed, started, called, upgraded with a call in flight, and removed. This
program stands in for systemd: it runs the unit's ExecStart and ExecReload with the unit's environment, user, folders and
mounts, and receives the notifications. It needs root, systemd-analyze, strace and dpkg, and no network.
"""
import argparse
import filecmp
import gzip
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

# On the copy of the machine, a folder with what the test reads of the repository.
REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests"))
from script_support import Agent, eventually, run

UNIT = Path("/usr/lib/systemd/system/gatepost.service")
CONFIG = Path("/etc/gatepost/gatepost.yaml")
# The unit may score at most this many tenths of systemd's exposure level.
MAX_EXPOSURE = 19


def build(gatepost, folder):
    """Two versions of the package, with one binary."""
    for version, output in (("0.1.0", folder), ("0.1.1-rc.1", folder), ("0.1.0", folder / "again")):
        environment = {"GATEPOST_VERSION": version, "GATEPOST_COMPRESSION": "none", "SOURCE_DATE_EPOCH": "1795000000"}
        run(REPOSITORY / "config/debian/build", gatepost, output, env=os.environ | environment)
    old, new = sorted(folder.glob("gatepost_*.deb"))
    again = folder / "again" / old.name
    assert filecmp.cmp(old, again, shallow=False), "a second build makes another package"
    again.unlink()
    assert new.name.startswith("gatepost_0.1.1~rc.1-1_"), new
    expect_completions_and_manual_pages(gatepost, old, folder / "unpacked")
    expect_no_package_of_a_binary_without_commands(folder / "without-commands")
    return old, new


def expect_completions_and_manual_pages(gatepost, package, folder):
    """Those that the binary writes. A machine may be told not to install manual pages, so the package itself is read."""
    run("dpkg-deb", "--extract", package, folder)
    share = folder / "usr/share"
    for shell, path in (("bash", "bash-completion/completions/gatepost"), ("zsh", "zsh/vendor-completions/_gatepost"), ("fish", "fish/vendor_completions.d/gatepost.fish")):
        text = (share / path).read_text()
        assert text and text == run(gatepost, "completions", shell).stdout, path
    run(gatepost, "man", folder / "man1")
    expected = {page.name: page.read_text() for page in (folder / "man1").iterdir()}
    packaged = {page.name.removesuffix(".gz"): gzip.decompress(page.read_bytes()).decode() for page in (share / "man/man1").glob("*.gz")}
    assert packaged == expected and {"gatepost.1", "gatepost-run.1"} <= packaged.keys(), (sorted(packaged), sorted(expected))
    files = [path for path in share.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}, [path for path in files if stat.S_IMODE(path.stat().st_mode) != 0o644]
    shutil.rmtree(folder)


def expect_no_package_of_a_binary_without_commands(folder):
    """A binary that lacks the commands fails the build, instead of a package without the files."""
    result = run(REPOSITORY / "config/debian/build", "/bin/false", folder, ok=False)
    assert result.returncode != 0 and not list(folder.glob("*.deb")), result


class ServiceManager:
    """What systemd does for this unit, as far as the gateway notices it."""

    def __init__(self, folder):
        self.settings = [line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"^[A-Z]\w+=", line)]
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("/run/notify")
        os.chmod("/run/notify", 0o777)
        self.socket.settimeout(60)
        self.folder, self.main = folder, None

    def all(self, name):
        return [value for setting, value in self.settings if setting == name]

    def one(self, name):
        (value,) = self.all(name)
        return value

    def command(self, name, trace=None):
        """The command of the setting `name`, as the unit's user, with the mounts of the unit's protections."""
        assert self.one("ProtectSystem") == "strict" and self.one("ProcSubset") == "pid" and self.one("PrivateTmp") == "yes"
        state, runtime = f"/var/lib/{self.one('StateDirectory')}", f"/run/{self.one('RuntimeDirectory')}"
        user = pwd.getpwnam(self.one("User"))
        for path, mode in ((state, self.one("StateDirectoryMode")), (runtime, self.one("RuntimeDirectoryMode"))):
            os.makedirs(path, exist_ok=True)
            os.chown(path, user.pw_uid, user.pw_gid)
            os.chmod(path, int(mode, 8))
        tracer = ["strace", "--follow-forks", "--quiet=all", "--output", str(trace)] if trace else []
        command = [*tracer, "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        command += shlex.split(self.one(name))
        mounts = f"""
            set -eu
            for path in {state} {runtime} /tmp; do mount --rbind $path $path; done
            mount -o remount,bind,ro /
            mount -t tmpfs -o ro tmpfs /home
            mount -t proc -o subset=pid proc /proc
            umask {self.one("UMask")}
            cd {self.one("WorkingDirectory")}
            exec {shlex.join(command)}
        """
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts]

    def environment(self):
        given = dict(assignment.split("=", 1) for assignment in self.all("Environment"))
        return {"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": "/run/notify", "LANG": "C.UTF-8"} | given

    def start(self, trace=None):
        self.log = (self.folder / "log").open("ab")
        subprocess.Popen(self.command("ExecStart", trace), env=self.environment(), stdout=self.log, stderr=self.log)
        self.main = int(self.receive("READY")["MAINPID"])

    def reload(self):
        """Returns the status of ExecReload."""
        environment = self.environment() | {"MAINPID": str(self.main)}
        # To a file and not to a pipe, which the successor would keep open.
        process = subprocess.Popen(self.command("ExecReload"), env=environment, stdout=self.log, stderr=self.log)
        return process.wait(timeout=150)

    def receive(self, name):
        """The next notification with an assignment of `name`."""
        while True:
            try:
                message = self.socket.recv(4096).decode()
            except TimeoutError:
                raise AssertionError(f"no notification with {name}: {self.text()}") from None
            message = dict(line.split("=", 1) for line in message.splitlines())
            if name in message:
                return message

    def text(self):
        return (self.folder / "log").read_text()


class Greeter(Agent):
    """Greets, after a second for each `wait`."""

    started = threading.Semaphore(0)

    def respond(self, body):
        body = json.loads(body)
        if body.get("wait"):
            Greeter.started.release()
            time.sleep(body["wait"])
        return json.dumps({"greeting": f"Hello, {body['name']}!"}).encode()


def invoke(key, body):
    """The status and body of a call."""
    request = urllib.request.Request("http://127.0.0.1:8080/agents/greeter/invoke", json.dumps(body).encode(), {"X-API-Key": key, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def mode_and_owner(path):
    status = os.stat(path)
    return f"{stat.S_IMODE(status.st_mode):o} {pwd.getpwuid(status.st_uid).pw_name} {run('stat', '-c', '%G', path).stdout.strip()}"


def expect_unit_is_valid_and_hardened():
    # What the unit needs beside itself is that of a machine that runs systemd.
    verified = run("systemd-analyze", "verify", UNIT, ok=False)
    complaints = [line for line in verified.stderr.splitlines() if "gatepost" in line]
    assert not complaints, complaints
    secure = run("systemd-analyze", "security", "--offline=true", f"--threshold={MAX_EXPOSURE}", UNIT)
    print(secure.stdout.strip().splitlines()[-1])


def allowed_system_calls(settings):
    """The system calls of SystemCallFilter=, by the sets of the installed systemd."""
    sets, current = {}, None
    for line in run("systemd-analyze", "syscall-filter", "--no-pager").stdout.splitlines():
        if line.startswith("@"):
            current = sets.setdefault(line.strip(), [])
        elif current is not None and line.strip() and not line.strip().startswith("#"):
            current.append(line.strip())

    def resolve(name):
        return set().union(*(resolve(member) for member in sets[name])) if name.startswith("@") else {name}

    allowed = resolve("@default")
    for filtered in settings:
        names = set().union(*(resolve(name) for name in filtered.lstrip("~").split()))
        allowed = allowed - names if filtered.startswith("~") else allowed | names
    return allowed


def expect_installed_files(version):
    assert run("dpkg-query", "-W", "-f", "${Status} ${Version}", "gatepost").stdout == f"install ok installed {version}"
    assert mode_and_owner("/etc/gatepost") == "750 root gatepost"
    assert mode_and_owner(CONFIG) == "640 root gatepost"
    assert mode_and_owner("/etc/gatepost/keys.jsonl") == "640 root gatepost"
    assert mode_and_owner("/etc/gatepost/agents") == "750 root gatepost"
    assert mode_and_owner("/var/lib/gatepost") == "700 gatepost gatepost"
    assert pwd.getpwnam("gatepost").pw_shell == "/usr/sbin/nologin" and pwd.getpwnam("gatepost").pw_uid < 1000
    assert run("dpkg", "--verify", "gatepost").stdout == ""


def documented_commands(section):
    """The commands of a section of docs/deploy.md."""
    text = (REPOSITORY / "docs/deploy.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def expect_documented_commands_lead_to_a_call(folder, old):
    """Five commands, as docs/deploy.md has them, on a machine without the package. Returns the manager that started the
    gateway in systemd's place."""
    commands = documented_commands("Debian package")
    assert len(commands) == 5, commands
    # The machine may be in the middle of another installation, which its copy then ends.
    run("dpkg", "--configure", "-a", ok=False)
    install, *others = [command.replace("./gatepost_0.1.0-1_amd64.deb", str(old)) for command in commands]
    # Root needs no sudo, which a machine may not have.
    run("bash", "-euc", "sudo() { \"$@\"; }; " + install, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
    expect_installed_files("0.1.0-1")
    manager = ServiceManager(folder)
    manager.start(trace=folder / "trace")
    # The gateway notices the document and the key within a second or so, which a person takes to type.
    call = others.pop().strip()
    script = "sudo() { \"$@\"; }\n" + "".join(others) + f"for attempt in $(seq 300); do {call} -f 2>/dev/null && exit; sleep 0.1; done; {call}"
    output = folder / "output"
    shell = subprocess.Popen(["bash", "-euc", script], stdout=output.open("wb"), stderr=subprocess.STDOUT, start_new_session=True, cwd="/")
    shell.wait(timeout=120)
    # The agent, which the shell left running.
    os.killpg(shell.pid, signal.SIGKILL)
    assert output.read_text().endswith('\n{"greeting": "Hello!"}'), (output.read_text(), manager.text())
    return manager


def inside(folder, old, new):
    manager = expect_documented_commands_lead_to_a_call(folder, old)
    expect_unit_is_valid_and_hardened()
    # Only root and the gateway read keys, and the gateway reads all that it needs.
    assert mode_and_owner("/etc/gatepost/keys.jsonl") == "640 root gatepost"
    run("setpriv", "--reuid=gatepost", "--regid=gatepost", "--init-groups", "gatepost", "check", "--strict", "-c", CONFIG, cwd="/")

    Greeter.start(port=8000)
    key = run("gatepost", "key", "new", "-c", CONFIG, "--caller", "team-b").stdout.strip()
    eventually(lambda: invoke(key, {"name": "Ada"}) == (200, {"greeting": "Hello, Ada!"}), lambda: (invoke(key, {"name": "Ada"}), manager.text()))

    expect_upgrade_keeps_calls(manager, key, new)
    expect_refused_reload_keeps_the_gateway(manager, key)
    expect_stop(manager)
    expect_system_calls_are_allowed(manager, folder / "trace")
    expect_removal()
    expect_systemd_is_told(old, new)


def runs_installed_binary(pid):
    return os.path.samefile(f"/proc/{pid}/exe", "/usr/bin/gatepost")


def expect_upgrade_keeps_calls(manager, key, new):
    # An operator's change stays.
    CONFIG.write_text(CONFIG.read_text() + "limits: {per_caller: 1000/s}\n")
    results = {}
    slow = threading.Thread(target=lambda: results.update(slow=invoke(key, {"name": "slow", "wait": 15})), daemon=True)
    slow.start()
    assert Greeter.started.acquire(timeout=60)
    stop, calls = threading.Event(), []

    def call_on():
        while not stop.is_set():
            calls.append(invoke(key, {"name": "x"})[0])

    others = threading.Thread(target=call_on, daemon=True)
    others.start()
    first = manager.main
    run("dpkg", "-i", new)
    assert not runs_installed_binary(first), "the package has another file now"
    assert manager.reload() == 0, manager.text()
    successor = int(manager.receive("MAINPID")["MAINPID"])
    assert successor != first and runs_installed_binary(successor), (first, successor)
    manager.main = successor
    # The first gateway serves its call to the end, and then it is gone.
    slow.join(timeout=60)
    assert results["slow"] == (200, {"greeting": "Hello, slow!"}), results
    eventually(lambda: not Path(f"/proc/{first}/exe").exists(), lambda: "the first gateway goes on")
    time.sleep(0.5)
    stop.set()
    others.join(timeout=60)
    assert len(calls) > 10 and set(calls) == {200}, calls
    print(f"upgrade: {len(calls)} calls, and one that lasted 15 s, without a failure")
    assert "per_caller: 1000/s" in CONFIG.read_text()
    assert run("dpkg-query", "-W", "-f", "${Version}", "gatepost").stdout == "0.1.1~rc.1-1"


def expect_refused_reload_keeps_the_gateway(manager, key):
    good = CONFIG.read_text()
    CONFIG.write_text(good + "surprise: 1\n")
    assert manager.reload() != 0
    assert "surprise" in manager.text()
    assert Path(f"/proc/{manager.main}/exe").exists() and invoke(key, {"name": "Ada"})[0] == 200
    CONFIG.write_text(good)


def expect_stop(manager):
    os.kill(manager.main, signal.SIGTERM)
    manager.receive("STOPPING")
    eventually(lambda: not Path(f"/proc/{manager.main}/exe").exists(), lambda: manager.text())
    # What survives a restart lies in the state folder.
    assert os.listdir("/var/lib/gatepost") == ["last-known-good"] or not os.listdir("/var/lib/gatepost"), os.listdir("/var/lib/gatepost")


def expect_system_calls_are_allowed(manager, trace):
    """The unit's filters, which this program cannot install, refuse nothing that the gateway used."""
    # setpriv runs before the gateway.
    calls = trace.read_text().split('execve("/usr/bin/gatepost"', 1)[1]
    used = set(re.findall(r"(?m)^\d+ +(\w+)\(", calls))
    # The kernel's own, after a signal.
    refused = used - allowed_system_calls(manager.all("SystemCallFilter")) - {"restart_syscall"}
    assert len(used) > 30 and not refused, refused
    families = set(re.findall(r"\bsocket\((AF_\w+)", calls))
    assert families and families <= set(manager.one("RestrictAddressFamilies").split()), families
    assert not re.search(r"PROT_WRITE\|PROT_EXEC|PROT_READ\|PROT_WRITE\|PROT_EXEC", calls), "memory that is writable and executable"
    assert " clone3(" not in calls or "CLONE_NEW" not in calls
    print(f"the gateway used {len(used)} system calls and {sorted(families)}, which the unit allows")


def expect_removal():
    run("dpkg", "-r", "gatepost")
    assert not Path("/usr/bin/gatepost").exists() and not UNIT.exists()
    assert CONFIG.exists() and Path("/etc/gatepost/keys.jsonl").read_text(), "a removal keeps the configuration and keys"
    run("dpkg", "-P", "gatepost")
    assert not Path("/var/lib/gatepost").exists() and not Path("/etc/gatepost/keys.jsonl").exists() and not CONFIG.exists()
    # Documents that an operator wrote are not the package's to delete.
    assert os.listdir("/etc/gatepost/agents") == ["greeter.yaml"]


SYSTEMCTL = """#!/bin/sh
echo "$@" >>/run/systemctl.log
case "$*" in
    # What changes links, and needs no systemd that runs.
    --root=/*) exec /usr/bin/systemctl.real "$@" ;;
    *is-enabled*) echo enabled ;;
    *" reload gatepost.service" | "reload gatepost.service") [ ! -e /run/no-reload ] ;;
esac
"""


def expect_systemd_is_told(old, new):
    """The scripts of the package, on a machine where systemd runs: this systemctl notes what it is told."""
    link, log = Path("/etc/systemd/system/multi-user.target.wants/gatepost.service"), Path("/run/systemctl.log")
    os.makedirs("/run/systemd/system")
    os.rename("/usr/bin/systemctl", "/usr/bin/systemctl.real")
    # A machine of tests may forbid packages to start services.
    Path("/usr/sbin/policy-rc.d").unlink(missing_ok=True)
    Path("/usr/bin/systemctl").write_text(SYSTEMCTL)
    os.chmod("/usr/bin/systemctl", 0o755)

    def told(*command):
        """What the package told the gateway's unit to do, and what it said itself."""
        log.write_text("")
        said = run("dpkg", *command).stderr
        verbs = re.findall(r"(?m)(?:^| )(start|stop|restart|reload|try-restart) gatepost\.service$", log.read_text())
        return verbs, [line for line in said.splitlines() if line.startswith("gatepost: ")]

    assert told("-i", old) == (["start"], []) and link.is_symlink(), log.read_text()
    assert told("-i", new) == (["reload"], []), log.read_text()
    # A new version that does not accept the configuration leaves the old one running, and says so.
    Path("/run/no-reload").touch()
    verbs, said = told("-i", old)
    assert verbs == ["reload"] and "the previous one keeps serving" in said[0], (verbs, said)
    assert told("-r", "gatepost") == (["stop"], []), log.read_text()
    assert told("-P", "gatepost") == ([], []) and not link.is_symlink(), log.read_text()
    print("systemd is told to start, reload and stop")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gatepost", type=Path)
    parser.add_argument("--inside", nargs=3, type=Path, metavar=("FOLDER", "OLD", "NEW"))
    options = parser.parse_args()
    if options.inside:
        return inside(*options.inside)
    if os.getuid() != 0:
        return print("package: not tested, because only root can install it on a copy of the machine")
    folder = Path(tempfile.mkdtemp(prefix="gatepost-package-"))
    try:
        folder.chmod(0o755)
        packages = build(options.gatepost.resolve(), folder)
        script = Path("tests/packaging/package.py")
        for path in (script, "tests/script_support.py", "docs/deploy.md"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / path, folder / path)
        run_inside = [REPOSITORY / "tests/packaging/scratch_machine", folder, sys.executable, folder / script, "--inside", folder, *packages]
        subprocess.run([str(part) for part in run_inside], check=True)
    finally:
        shutil.rmtree(folder)


main()
