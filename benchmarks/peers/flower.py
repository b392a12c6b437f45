"""Flower: FedAvg in its simulation on Ray, two actors with one thread each."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.nn.utils import vector_to_parameters

from benchmarks.limit import BATCH, DRAWN, LR
from benchmarks.peers.plain import accuracy, load
from benchmarks.serving import Questions, Stopwatch

client, server = ClientApp(), ServerApp()
ACTORS = 2


@cache
def kept(task: str, name: str) -> tuple[dict[str, Any], nn.Module]:
    """Read and built once per process, which an actor is: better than Flower's examples, which do so in every call."""
    torch.set_num_threads(1)
    return load(task, name)


@client.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """One epoch on a node's samples."""
    asked = message.content["config"]
    held, module = kept(str(asked["task"]), str(asked["model"]))
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    module.train()
    node = int(context.node_config["partition-id"])
    x, y = torch.from_numpy(held["x"][node]), torch.from_numpy(held["y"][node])
    optimizer, total = torch.optim.SGD(module.parameters(), lr=LR), 0.0
    for some in torch.randperm(len(y)).split(BATCH):
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x[some]), y[some])
        loss.backward()
        optimizer.step()
        total += loss.item()
    metrics = MetricRecord({"train_loss": total, "num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def main(task: str, nodes: str = "50") -> None:
    questions, models = Questions(), {}
    strategy = FedAvg(
        fraction_train=DRAWN / int(nodes), fraction_evaluate=0.0, min_train_nodes=DRAWN, min_available_nodes=int(nodes)
    )

    def module_of(name: str) -> nn.Module:
        held, module = kept(task.format(name.partition("+")[0]), name)
        if name not in models:
            vector_to_parameters(torch.from_numpy(held["initial"]).clone(), module.parameters())
            models[name] = ArrayRecord(module.state_dict())
        return module

    @server.main()  # type: ignore[untyped-decorator]
    def rounds(grid: Grid, context: Context) -> None:
        def answer(question: dict[str, Any]) -> dict[str, Any]:
            name = question["model"]
            module, path = module_of(name), task.format(name.partition("+")[0])
            if question.get("accuracy"):
                module.load_state_dict(models[name].to_torch_state_dict())
                return {"accuracy": accuracy(module, kept(path, name)[0])}
            config = ConfigRecord({"task": path, "model": name})
            watch = Stopwatch()
            found = strategy.start(grid, models[name], num_rounds=question["rounds"], train_config=config)
            models[name] = found.arrays
            return watch.per(question["rounds"])

        questions.serve(answer)

    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": ACTORS, "include_dashboard": False}}
    run_simulation(server, client, int(nodes), backend_config=resources)
