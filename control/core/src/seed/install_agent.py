#!/usr/bin/env python3
"""Installs the Ironwright agent; run once by cloud-init.

It is a script and not cloud-config, because `runcmd` or `write_files` of the operator's user-data would replace
those of vendor-data.
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

SETUP = json.loads(@SETUP@)

ROOT = sys.argv[1] if len(sys.argv) > 1 else "/"
PROGRAM_DIR = os.path.join(ROOT, "usr/lib/ironwright")
CONFIG = os.path.join(ROOT, "etc/ironwright/agent.toml")
UNIT_NAME = "ironwright-agent.service"
UNIT = os.path.join(ROOT, "etc/systemd/system", UNIT_NAME)

ATTEMPTS = 30
PAUSE_S = 10
TIMEOUT_S = 60
MAX_BUNDLE = 512 << 20
MAX_MEMBERS = 256
CHUNK = 1 << 20
MEMBER = re.compile(r"(lib/)?[A-Za-z0-9_][A-Za-z0-9._+-]*")


def write(path, text, mode):
    """Puts a file in place, complete and with its mode from the first moment."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = path + ".new"
    if os.path.lexists(new):
        os.unlink(new)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    os.replace(new, path)


def fetch(url, sha256, into):
    """Copies the bundle to a file and compares its digest."""
    into.seek(0)
    into.truncate()
    digest, size = hashlib.sha256(), 0
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        while chunk := answer.read(CHUNK):
            size += len(chunk)
            if size > MAX_BUNDLE:
                raise ValueError(f"{url} has more than {MAX_BUNDLE} bytes")
            digest.update(chunk)
            into.write(chunk)
    if digest.hexdigest() != sha256:
        raise ValueError(f"{url} has digest {digest.hexdigest()}, not {sha256}")
    into.seek(0)


def fetch_with_retries(url, sha256, into):
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return fetch(url, sha256, into)
        except (OSError, ValueError) as error:
            print(f"attempt {attempt} of {ATTEMPTS}: {error}", file=sys.stderr)
            if attempt == ATTEMPTS:
                raise
            time.sleep(PAUSE_S)


def unpack(bundle):
    """Unpacks the program beside the installed one, then takes its place."""
    new = PROGRAM_DIR + ".new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(os.path.join(new, "lib"))
    loaders = []
    with tarfile.open(fileobj=bundle, mode="r:gz") as tar:
        for count, member in enumerate(tar, 1):
            if count > MAX_MEMBERS or not member.isreg() or not MEMBER.fullmatch(member.name):
                raise ValueError(f"the bundle has an unexpected member {member.name!r}")
            with open(os.path.join(new, member.name), "xb") as file:
                shutil.copyfileobj(tar.extractfile(member), file)
            os.chmod(file.name, 0o755)
            if member.name.startswith("lib/ld-"):
                loaders.append(member.name)
    if len(loaders) != 1:
        raise ValueError(f"the bundle has {len(loaders)} loaders instead of one")
    os.symlink(loaders[0], os.path.join(new, "loader"))
    shutil.rmtree(PROGRAM_DIR, ignore_errors=True)
    os.rename(new, PROGRAM_DIR)


def main():
    write(CONFIG, SETUP["agent_toml"], 0o600)
    with tempfile.TemporaryFile() as bundle:
        fetch_with_retries(SETUP["bundle_url"], SETUP["bundle_sha256"], bundle)
        unpack(bundle)
    write(UNIT, SETUP["unit"], 0o644)
    for command in (["daemon-reload"], ["enable", "--now", UNIT_NAME]):
        subprocess.run(["systemctl", *command], check=True, timeout=5 * TIMEOUT_S)


main()
