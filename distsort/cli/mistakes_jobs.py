"""The likeliest mistakes behind errors of the commands about jobs; see `mistakes`."""

from __future__ import annotations

from distsort.cli.mistakes import Case

CASES: tuple[Case, ...] = (
    Case(
        r"the service cannot be reached|does a scheduler with distsort.service answer",
        (
            "the port is that of the scheduler: the service's is 8787 by default, as in http://host:8787",
            "no service is up: start one with 'distsort serve --root /data'",
            "another host was meant: give --url, or set DISTSORT_URL",
        ),
    ),
    Case(
        r"the token is missing or wrong|read-only: it was started without a token",
        (
            "your shell has no token: export DISTSORT_TOKEN, the same as that of the service",
            "the service was started without one: start it with DISTSORT_TOKEN set, or --token-file",
            "the token has changed since: ask who runs the service",
        ),
    ),
    Case(
        r"outside the allowed roots|no roots are configured|leads outside",
        (
            "the service reads and writes below its roots only: put the files there",
            "the root was left out when the service was started: distsort serve --root /data",
            "a path of your own machine was given: paths are those of the cluster",
        ),
    ),
    Case(
        r"there is no job",
        (
            "the id is misspelt: 'distsort list' shows all of them",
            "the job was deleted, or is older than what the service keeps",
            "another service was asked: give --url, or set DISTSORT_URL",
        ),
    ),
)
