"""An object store on this machine: moto's S3, in a process of its own, on a free port of the loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUCKET, REGION = "data", "us-east-1"
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


@dataclass(frozen=True)
class Server:
    """A store that runs.

    Attributes:
        variables: of the environment, by which clients find it.
        log: file with a line for each request.
    """

    variables: dict[str, str]
    log: Path

    def write(self, key: str, content: bytes) -> None:
        """Writes an object of the bucket."""
        with self._client() as client:
            client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def remove(self, key: str) -> None:
        """Removes an object, or all of a folder."""
        with self._client() as client:
            for each in client.list_objects_v2(Bucket=BUCKET, Prefix=key)["Contents"]:
                if each["Key"] == key or each["Key"].startswith(f"{key}/"):
                    client.delete_object(Bucket=BUCKET, Key=each["Key"])

    def asked(self, of: str = "") -> int:
        """How often something was read or listed whose path has a text."""
        lines = self.log.read_text("utf-8").splitlines()
        return sum(1 for line in lines if ('"GET ' in line or '"HEAD ' in line) and of in line)

    def fetched(self, key: str) -> int:
        """How often bytes of an object were asked for."""
        return sum(1 for line in self.log.read_text("utf-8").splitlines() if f'"GET /{BUCKET}/{key} ' in line)

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        """A client whose connections are closed here: s3fs leaves its own open where 0.1 s is too short for that."""
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=self.variables["AWS_ENDPOINT_URL"],
            region_name=REGION,
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )
        with contextlib.closing(client):
            yield client


@contextlib.contextmanager
def store(folder: Path) -> Iterator[Server]:
    """A store with an empty bucket, until the block ends.

    Args:
        folder: for its log.
    """
    log = folder / "requests.log"
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-P", __file__], stdout=subprocess.PIPE, stderr=file, text=True)
    try:
        assert process.stdout is not None
        port = next(line.removeprefix("port ") for line in process.stdout if line.startswith("port ")).strip()
        found = Server(
            {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true", **KEYS}, log
        )
        with found._client() as client:
            client.create_bucket(Bucket=BUCKET)
        yield found
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    print("port", server.get_host_and_port()[1], flush=True)
    signal.pause()


if __name__ == "__main__":
    os.environ["AWS_DEFAULT_REGION"] = REGION
    main()
