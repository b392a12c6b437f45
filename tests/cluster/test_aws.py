"""`cluster/gpu.yaml` and its stack, run by Ray's own AWS code against moto: what would be created, and what is left."""

import boto3
import pytest
from moto import mock_aws

from tests.cluster.validation import ROOT, bootstrapped_on_aws, validate

REGION = "us-west-2"


@pytest.fixture
def aws(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray keeps the key that it makes in ~/.ssh
    (tmp_path / ".ssh").mkdir()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with mock_aws():
        stack = {
            "StackName": "fedpns",
            "TemplateBody": (ROOT / "cluster/aws.cloudformation.yaml").read_text(),
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


def test_the_bucket_stays(aws):
    s3 = boto3.client("s3", region_name=REGION)
    boto3.client("cloudformation", region_name=REGION).delete_stack(StackName="fedpns")
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["my-bucket"]
