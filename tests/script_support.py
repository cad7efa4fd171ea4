"""What the scripts in tests/helm and tests/packaging share. It needs Python 3.11 and nothing else."""
import os
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def run(*command, ok=True, **arguments):
    """Runs a command to its end, and returns its status and output. Without `ok=False`, it has to succeed."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **arguments)
    if ok and result.returncode != 0:
        raise AssertionError(f"{command} failed with {result.returncode}: {result.stdout}\n{result.stderr}")
    return result


# Below the ports that the kernel gives to sockets without a port of their own, as in tests/it/support/ports.rs.
RESERVABLE = range(20_000, 32_000)
reservations = []


def free_port():
    """Reserves a port of loopback until the script ends: no other test gets it. An abstract unix socket is the
    reservation, because it ends with this process as a port does."""
    start = os.getpid() * 31 % len(RESERVABLE)
    for number in [*RESERVABLE[start:], *RESERVABLE[:start]]:
        reservation, listener = socket.socket(socket.AF_UNIX), socket.socket()
        try:
            reservation.bind(f"\0gatepost-test-port-{number}")
            # A program that is no test may listen on the port.
            listener.bind(("127.0.0.1", number))
        except OSError:
            reservation.close()
            continue
        finally:
            listener.close()
        reservations.append(reservation)
        return number
    raise AssertionError("no port can be reserved")


def eventually(condition, describe, process=None, seconds=60):
    """Waits until `condition()` is true. An OSError, such as a refused connection, means not yet. It fails with
    `describe()` after the time, or as soon as `process` has ended."""
    deadline, last_error = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        assert process is None or process.poll() is None, describe()
        try:
            if condition():
                return
        except OSError as error:
            last_error = error
        time.sleep(0.05)
    raise AssertionError(f"not in {seconds} s ({last_error}): {describe()}")


class Agent(BaseHTTPRequestHandler):
    """An agent that answers each POST with the JSON that `respond` makes of the body."""

    def respond(self, body):
        raise NotImplementedError

    def do_POST(self):
        response = self.respond(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *_):
        pass

    @classmethod
    def start(cls, port=0):
        """Serves on loopback until the script ends, and returns the port."""
        server = ThreadingHTTPServer(("127.0.0.1", port), cls)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_port
