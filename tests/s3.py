"""A real S3 server on this machine, in a process of its own, that checks signatures: moto's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import boto3
import httpx

from stages.engine.free_port import free_port

_UNCHECKED = 4  # requests that set the server up, before it wants signatures
_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


class S3Server:
    """Running, with one empty bucket and one user, whose credentials are `environment`."""

    def __init__(self, bucket: str) -> None:
        self.bucket, self._port = bucket, free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "--port", str(self._port)],
            env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(_UNCHECKED)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, "the S3 server ended"
            assert time.monotonic() < deadline, "the S3 server did not start"
            time.sleep(0.05)
        self.key, self.secret = self._user()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.endpoint}/moto-api/", timeout=5).status_code < 500
        except httpx.TransportError:
            return False

    def _user(self) -> tuple[str, str]:
        anybody = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        iam = boto3.client("iam", endpoint_url=self.endpoint, **anybody)
        iam.create_user(UserName="rtrl")
        iam.put_user_policy(UserName="rtrl", PolicyName="all", PolicyDocument=json.dumps(_ALL))
        made = iam.create_access_key(UserName="rtrl")["AccessKey"]
        boto3.client("s3", endpoint_url=self.endpoint, **anybody).create_bucket(Bucket=self.bucket)
        return str(made["AccessKeyId"]), str(made["SecretAccessKey"])

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to use it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "2",
            "AWS_EC2_METADATA_DISABLED": "true",  # no network: nobody else is asked for credentials
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def client(self) -> Any:
        """The vendor's own client, to look and to break things."""
        keys = {"aws_access_key_id": self.key, "aws_secret_access_key": self.secret}
        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", **keys)

    def stop(self) -> None:
        """End it, with all that it holds."""
        self.process.kill()
        self.process.wait()
