"""The HTTP interface against its own description, with requests that schemathesis makes up."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, Phase, settings

import distsort.service.http as http
from distsort.service.jobs import Limits
from tests.deploy.conftest import TOKEN

schemathesis = pytest.importorskip("schemathesis")

# A schema cannot say that there are as many directions as keys, or which roots are allowed.
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
BEYOND_SCHEMAS = [checks.positive_data_acceptance]

DESCRIPTION = Path(http.__file__).with_name("openapi.yaml")
described = yaml.safe_load(DESCRIPTION.read_text())
# Paths that are made up lead nowhere: some below the roots are needed.
described["components"]["schemas"]["Place"]["enum"] = ["/data/out/fine", "/data/out/wrong", "s3://bucket/x", "/etc/x"]
schema = schemathesis.openapi.from_dict(described)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    from tests.deploy.conftest import Served

    served = Served(tmp_path_factory.mktemp("jobs"), TOKEN, Limits(running=2, queued=20), 1.0)
    served.client.submit("/data/out/fine", "/data/out/fine", "k", submission_id="there")
    served.client.wait("there", 30)
    yield served.url
    served.close()


@schema.parametrize()
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@pytest.mark.parametrize("token", [True, False], ids=["token", "stranger"])
def test_what_is_answered_is_what_is_described(case, url, token):
    # Half of the ids that are made up are led to a job that is there.
    if "id" in (case.path_parameters or {}) and len(str(case.path_parameters["id"])) % 2:
        case.path_parameters["id"] = "there"
    headers = {"Authorization": f"Bearer {TOKEN}"} if token else {"Authorization": "Bearer guessed"}
    response = case.call(base_url=url, headers=headers)
    assert response.status_code < 500, response.text
    writes = case.method.upper() != "GET"
    if writes and not token:
        # 400 and 405 come from the server, before anything of ours has seen the request.
        assert response.status_code in (400, 401, 405)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.validate_response(response, headers=headers, excluded_checks=BEYOND_SCHEMAS)
