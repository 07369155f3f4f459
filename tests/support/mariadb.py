"""A MariaDB of one's own: Debian's server in a temporary directory, gone afterwards.

For tests and benchmarks. It reads no configuration of the machine, listens on a unix
socket only, and knows one account, which may use the databases that `create_database`
makes. As root it runs as ``nobody``. What it has committed outlives its process, but not
the machine: it hands its pages to the kernel and does not wait for the disk.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pymysql
from sqlalchemy import URL

from stoilo.core.errors import InternalError
from stoilo.server.db.mariadb import PACKET_BYTES

__all__ = ["DYING", "MariaServer", "find_mariadbd"]

# Dies with us. No `preexec_fn` and no `user`: with them Python forks, and a child that was
# forked beside gRPC's threads may crash before it is mariadbd.
DYING = ("setpriv", "--pdeathsig", "KILL")
START_S = 60.0
STOP_S = 30.0
_PLACES = "/usr/sbin:/usr/local/sbin:/usr/libexec"
_SHARES = (Path("/usr/share/mysql"), Path("/usr/share/mariadb"))
_TABLES = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
_ACCOUNT = """FLUSH PRIVILEGES;
DROP USER IF EXISTS root@localhost, root@'127.0.0.1', root@'::1';
CREATE USER stoilo@localhost IDENTIFIED BY '{password}';
GRANT ALL ON `stoilo\\_%`.* TO stoilo@localhost;
"""


def find_mariadbd() -> str | None:
    """Return the server's program, None where Debian's package is not installed."""
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:{_PLACES}")


class MariaServer:
    """One `mariadbd`; enter to start it, leave to stop it and remove its directory.

    Args:
        options: further ones of the server's command line, in place of our own.

    Attributes:
        directory: everything it writes.
        process: the server, None while it does not run.

    Raises:
        InternalError: ``STO-R030`` where it is not installed or does not start.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        self.directory = Path(tempfile.mkdtemp(prefix="maria-"))
        self.process: subprocess.Popen[bytes] | None = None
        self._password = secrets.token_hex(16)
        self._databases = 0

    def __enter__(self) -> Self:
        try:
            self._install()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def socket(self) -> Path:
        """Return where it listens."""
        return self.directory / "socket"

    def start(self) -> None:
        """Start the server on what is in its directory; returns when it answers."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *self._command(),
                    "--skip-networking",
                    f"--socket={self.socket}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        end = time.monotonic() + START_S
        while problem := self._try():
            code = self.process.poll()
            if code is not None or time.monotonic() > end:
                raise self._failure(f"it does not start ({problem}; exit {code})")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server in order."""
        self._end(kill=False)

    def kill(self) -> None:
        """End the server as a lost machine does."""
        self._end(kill=True)

    def close(self) -> None:
        """End the server and remove everything it wrote."""
        self._end(kill=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def create_database(self) -> str:
        """Make an empty database; returns its SQLAlchemy URL."""
        self._databases += 1
        name = f"stoilo_{self._databases}"
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return self._url(name)

    def _url(self, name: str) -> str:
        url = URL.create(
            "mariadb+pymysql",
            username="stoilo",
            password=self._password,
            host="localhost",
            database=name,
            query={"unix_socket": str(self.socket)},
        )
        return url.render_as_string(hide_password=False)

    def _connect(self) -> pymysql.Connection:
        return pymysql.connect(
            unix_socket=str(self.socket), user="stoilo", password=self._password
        )

    def _try(self) -> str:
        """Return why it does not answer, empty when it does."""
        try:
            with socket.socket(socket.AF_UNIX) as probe:  # PyMySQL leaves its own open
                probe.connect(str(self.socket))
            self._connect().close()
        except (OSError, pymysql.Error) as error:
            return str(error)
        return ""

    def _install(self) -> None:
        """Make the server's own tables and our account."""
        share = next((one for one in _SHARES if (one / _TABLES[0]).is_file()), None)
        if share is None:
            raise self._failure("its tables are not installed")
        self._make_places()
        parts = ["CREATE DATABASE mysql;", "USE mysql;"]
        parts += [(share / name).read_text() for name in _TABLES]
        parts.append(_ACCOUNT.format(password=self._password))
        done = subprocess.run(
            [*self._command(), "--bootstrap"],
            input="\n".join(parts).encode(),
            capture_output=True,
            check=False,
            cwd=self.directory,
        )
        self._log.write_bytes(done.stderr)
        if done.returncode:
            raise self._failure("it cannot make its tables")

    def _make_places(self) -> None:
        data = self.directory / "data"
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for place in (self.directory, data):
                os.chown(place, nobody.pw_uid, nobody.pw_gid)

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def _command(self) -> list[str]:
        program = find_mariadbd()
        if program is None:
            raise self._failure("apt-get install mariadb-server-core")
        return [
            *DYING,
            *self._identity(),
            *(program, "--no-defaults", f"--datadir={self.directory / 'data'}"),
            *(f"--tmpdir={self.directory}", f"--max-allowed-packet={PACKET_BYTES}"),
            *("--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"),
            *("--innodb-flush-method=nosync", "--sync-frm=0"),
            *self._options,
        ]

    def _identity(self) -> list[str]:
        """Return who the server is, as words of setpriv."""
        if os.geteuid() != 0:
            return []
        nobody = pwd.getpwnam("nobody")
        return [
            f"--reuid={nobody.pw_uid}",
            f"--regid={nobody.pw_gid}",
            "--clear-groups",
        ]

    def _end(self, *, kill: bool) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.kill() if kill else process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        process.kill()
        process.wait()

    def _failure(self, why: str) -> InternalError:
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        last = " | ".join(text.splitlines()[-3:])[:500]
        return InternalError("STO-R030", f"MariaDB: {why}. {last}".strip())
