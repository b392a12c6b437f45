"""`cluster/gpu.yaml` and its stack, run by Ray's own AWS code against moto: what would be created, and what is left."""

import contextlib
from collections import Counter
from types import SimpleNamespace

import boto3
import pytest
import yaml
from moto import mock_aws
from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

from fedpns_ray.runtime.arrivals import described
from fedpns_ray.runtime.launch_log import explained, refusals
from fedpns_ray.runtime.ray_private import end_cluster
from tests.cluster.scaling import refused
from tests.cluster.validation import ROOT, bootstrapped_on_aws, validate

REGION = "us-west-2"
TEMPLATE = ROOT / "cluster" / "aws.cloudformation.yaml"


@pytest.fixture
def aws(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray keeps the key that it makes in ~/.ssh
    (tmp_path / ".ssh").mkdir()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with mock_aws():
        stack = {
            "StackName": "fedpns",
            "TemplateBody": TEMPLATE.read_text(),
            "Parameters": [{"ParameterKey": "Bucket", "ParameterValue": "my-bucket"}],
            "Capabilities": ["CAPABILITY_NAMED_IAM"],
        }
        boto3.client("cloudformation", region_name=REGION).create_stack(**stack)
        yield boto3.client("ec2", region_name=REGION)


def instances(ec2):
    return [machine for group in ec2.describe_instances()["Reservations"] for machine in group["Instances"]]


def test_machines_as_described_behind_ssh_alone_and_none_left(aws):
    config, provider = bootstrapped_on_aws(validate((ROOT / "cluster/gpu.yaml").read_text()))
    (group,) = aws.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["fedpns"]}])["SecurityGroups"]
    from_outside = [rule for rule in group["IpPermissions"] if rule["IpRanges"] or rule["Ipv6Ranges"]]
    assert [(rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for rule in from_outside] == [("tcp", 22, 22)]
    inside = [rule["UserIdGroupPairs"] for rule in group["IpPermissions"] if rule not in from_outside]
    assert [[pair["GroupId"] for pair in pairs] for pairs in inside] == [[group["GroupId"]]]

    for name, kind in config["available_node_types"].items():
        provider.create_node(kind["node_config"], {"ray-node-type": "worker", "ray-user-node-type": name}, 1)
    made = [
        (m["InstanceType"], m.get("InstanceLifecycle"), m["IamInstanceProfile"]["Arn"].rpartition("/")[2])
        for m in instances(aws)
    ]
    assert made == [
        ("m6i.large", None, "fedpns-head"),
        ("g5.2xlarge", "spot", "fedpns-worker"),
        ("g5.2xlarge", None, "fedpns-worker"),
    ]
    provider.terminate_nodes(provider.non_terminated_nodes({}))
    assert {m["State"]["Name"] for m in instances(aws)} == {"terminated"}
    assert aws.describe_volumes()["Volumes"] == []


def test_a_head_that_is_idle_ends_its_workers_and_itself(aws):
    """By the calls that its role allows; another cluster's machines stay."""
    config, provider = bootstrapped_on_aws(validate((ROOT / "cluster/gpu.yaml").read_text()))
    kinds = config["available_node_types"]
    for node_kind, name in (("head", "head"), ("worker", "gpu-spot"), ("worker", "gpu-on-demand")):
        provider.create_node(kinds[name]["node_config"], {"ray-node-type": node_kind, "ray-user-node-type": name}, 1)
    other = AWSNodeProvider(config["provider"], "other")
    other.create_node(kinds["head"]["node_config"], {"ray-node-type": "head", "ray-user-node-type": "head"}, 1)
    ended = []
    with hooked(provider, "before-call.ec2.TerminateInstances", lambda params, **_: ended.append(params["body"])):
        end_cluster(config)
    assert len(ended) == 2, "the workers first: nobody could end them after the head"
    assert [m["State"]["Name"] for m in instances(aws)] == ["terminated"] * 3 + ["running"]
    head = instances(aws)[0]["InstanceId"]
    assert head not in str(ended[0]) and head in str(ended[1])
    assert {"ec2:TerminateInstances", "ec2:DescribeInstances"} <= allowed("Head")


# --- what the head may do ---------------------------------------------------------------------------------------------

BY_AWS = {"iam:PassRole", "iam:CreateServiceLinkedRole", "ssm:GetParameters"}
"""Not called by name: AWS itself asks for them when a machine is started with a role, as spot, or by a named image."""


class Template(yaml.SafeLoader):
    """CloudFormation's tags, as the words that follow them."""


Template.add_multi_constructor("!", lambda loader, tag, node: node.value)


def statements(role):
    """All that a role allows, as the template says: moto attaches no managed policies."""
    resources = yaml.load(TEMPLATE.read_text(), Template)["Resources"]  # noqa: S506
    properties = resources[role]["Properties"]
    own = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
    shared = [resources[name]["Properties"]["PolicyDocument"] for name in properties["ManagedPolicyArns"]]
    return [statement for document in (*own, *shared) for statement in document["Statement"]]


def listed(value):
    return [value] if isinstance(value, str) else value


def allowed(role):
    return {action for statement in statements(role) for action in listed(statement["Action"])}


def test_the_head_may_do_what_its_autoscaler_does_and_nothing_else(aws):
    """Every call that Ray's provider makes over a machine's life is recorded, and compared with the policy."""
    config, provider = bootstrapped_on_aws(validate((ROOT / "cluster/gpu.yaml").read_text()))
    called = set()
    with hooked(provider, "before-call.ec2", lambda model, **_: called.add(f"ec2:{model.name}")):
        live_through(config, provider)
    assert called == {name for name in allowed("Head") if name.startswith("ec2:")}
    assert {name for name in allowed("Head") if name.partition(":")[0] not in ("ec2", "s3")} == BY_AWS
    assert {name.partition(":")[0] for name in allowed("Worker")} == {"s3"}


@contextlib.contextmanager
def hooked(provider, event, handler):
    """Ray keeps its clients for the life of the process: nothing of a test may stay in them."""
    hooks = [resource.meta.client.meta.events for resource in (provider.ec2, provider.ec2_fail_fast)]
    for events in hooks:
        events.register(event, handler)
    try:
        yield
    finally:
        for events in hooks:
            events.unregister(event, handler)


def live_through(config, provider):
    """The life of two machines: started, seen, tagged, looked up, terminated."""
    for name in ("gpu-spot", "gpu-on-demand"):
        kind = config["available_node_types"][name]
        provider.create_node(kind["node_config"], {"ray-node-type": "worker", "ray-user-node-type": name}, 1)
    for node in provider.non_terminated_nodes({}):
        provider.set_node_tags(node, {"ray-node-status": "up-to-date"})
        assert provider.is_running(node) and provider.internal_ip(node) and provider.external_ip(node)
        assert provider.node_tags(node)["ray-cluster-name"] == "fedpns"
    provider.terminate_nodes(provider.non_terminated_nodes({}))


@pytest.mark.parametrize("role", ["Head", "Worker"])
def test_no_permission_is_broad(role):
    cluster = yaml.safe_load((ROOT / "cluster/gpu.yaml").read_text())["cluster_name"]
    for statement in statements(role):
        assert not [action for action in listed(statement["Action"]) if "*" in action]
        everything = "*" in listed(statement["Resource"])
        assert not everything or listed(statement["Action"]) == ["ec2:DescribeInstances"]
        for resource in listed(statement["Resource"]):
            if resource.endswith(":instance/*"):
                (condition,) = statement["Condition"]["StringEquals"].items()
                assert condition in [
                    ("aws:RequestTag/ray-cluster-name", cluster),
                    ("aws:ResourceTag/ray-cluster-name", cluster),
                    ("ec2:CreateAction", "RunInstances"),
                ]


# --- what a user reads when AWS refuses -------------------------------------------------------------------------------

REFUSALS = [
    ("gpu-spot", 3, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"),
    (
        "gpu-on-demand",
        1,
        "VcpuLimitExceeded",
        "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that "
        "the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request "
        "an adjustment to this limit.",
    ),
    (
        "gpu-spot",
        3,
        "InsufficientInstanceCapacity",
        "There is no Spot capacity available that matches your request.",
    ),
]
"""Machines that were asked for, AWS's code and AWS's words. Everything around them is Ray's."""


@pytest.mark.parametrize(("kind", "count", "code", "words"), REFUSALS)
def test_the_readme_quotes_what_the_log_says_when_aws_refuses(aws, kind, count, code, words):
    config, provider = bootstrapped_on_aws(validate((ROOT / "cluster/gpu.yaml").read_text()))
    answer = SimpleNamespace(status_code=400), {"Error": {"Code": code, "Message": words}, "ResponseMetadata": {}}
    with hooked(provider, "before-call.ec2.RunInstances", lambda **_: answer):
        log, status = refused(provider, config, kind, count)
    quoted = f"Failed to launch {count} nodes of type {kind}: Node Launch Exception ({code}): {words}"
    assert quoted in log
    readme = (ROOT / "cluster" / "README.md").read_text()
    assert quoted in readme
    known = refusals(f"2026-01-01 14:02:31,123\tINFO node_provider.py:491 -- {quoted}", now=0.0)
    assert described(explained([], known), Counter()) in readme, "what `fedpns` says while it waits"
    assert code not in status and words not in status, "as cluster/README.md says: `ray status` does not tell why"


def test_the_bucket_stays(aws):
    s3 = boto3.client("s3", region_name=REGION)
    boto3.client("cloudformation", region_name=REGION).delete_stack(StackName="fedpns")
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["my-bucket"]


def test_cloudformation_takes_the_template():
    """By the schemas of AWS's resources, which cfn-lint carries; moto brings it along."""
    from cfnlint.api import lint

    text = TEMPLATE.read_text()
    assert lint(text, regions=[REGION]) == []
    assert lint(text.replace("InstanceProfileName: fedpns-head", "ProfileName: fedpns-head"), regions=[REGION])
