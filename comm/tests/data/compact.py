"""Makes the layout fixtures from the recorded tables of Megatron-LM, MindSpeed and vLLM groups.

    python3 compact.py groups_public.json mindspeed_public.json vllm_public.json

writes layout_megatron.txt, layout_mindspeed.txt and layout_vllm.txt beside this script. Nothing is
computed here: rank lists are only written shorter. Run it again when the recorded tables change; the
tests that read the result are megatron.rs, mindspeed.rs and vllm.rs in comm/tests/layout.

Notation. A rank list is a comma list of runs: `5`, `0-7` (every rank), `0-14/2` (every second).
Groups of one shape are `firsts;offsets`: each first plus all offsets is one group. A table index
has two base-36 digits. Sections begin with `[name]`.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
DENSE = 11  # The first eleven kinds belong to the dense part, the last five to the expert part.


def runs(ranks):
    out, at = [], 0
    while at < len(ranks):
        end = at + 1
        if end < len(ranks):
            step = ranks[end] - ranks[at]
            while step > 0 and end + 1 < len(ranks) and ranks[end + 1] - ranks[end] == step:
                end += 1
            if step > 0 and (end - at >= 2 or step == 1):
                out.append(f"{ranks[at]}-{ranks[end]}" + (f"/{step}" if step > 1 else ""))
                at = end + 1
                continue
        out.append(str(ranks[at]))
        at += 1
    return ",".join(out)


def shape(groups):
    offsets = [rank - groups[0][0] for rank in groups[0]]
    for group in groups:
        assert [rank - group[0] for rank in group] == offsets, "groups of unequal shape"
    return runs([group[0] for group in groups]) + ";" + runs(offsets)


def index(number):
    assert number < 36 * 36
    return DIGITS[number // 36] + DIGITS[number % 36]


def optional(value):
    return "-" if value is None else str(value)


class Table:
    """Rows that are written once and referred to by number."""

    def __init__(self):
        self.rows = {}

    def add(self, row):
        return self.rows.setdefault(row, len(self.rows))


def calls(log):
    """new_group calls: consecutive ones with equal name, backend and timeout share a prefix."""
    out, last = [], None
    for name, backend, timeout, ranks in log:
        head = f"{name}:{backend}:{'-' if timeout is None else int(timeout)}"
        out.append(runs(ranks) if head == last else f"{head}={runs(ranks)}")
        last = head
    return " ".join(out)


def by_order(rows, key, order, value):
    grouped = defaultdict(lambda: defaultdict(list))
    for row in rows:
        grouped[key(row)][value(row)].append(order(row))
    for head, values in grouped.items():
        tail = " ".join(f"{name}:{runs(sorted(orders))}" for name, orders in values.items())
        yield " ".join(map(optional, head)) + " " + tail


def megatron(source):
    yield "# Made by compact.py from recorded calls of Megatron-LM core_v0.12.1 and core_v0.15.3."
    yield "[orders]"
    yield from source["orders"]
    yield "[partitions]"
    yield from map(shape, source["partitions"])
    dense, expert, combo = Table(), Table(), Table()
    records = list(
        by_order(
            source["records"],
            lambda row: tuple(row[:6]) + tuple(row[7:9]),
            lambda row: row[6],
            lambda row: f"{dense.add(tuple(row[9:9 + DENSE]))}.{expert.add(tuple(row[9 + DENSE:]))}",
        )
    )
    combos = list(
        by_order(
            source["combos"],
            lambda row: tuple(row[:6]),
            lambda row: row[6],
            lambda row: combo.add(tuple(row[7:])),
        )
    )
    for name, table in (("dense", dense), ("expert", expert)):
        yield f"[{name}]"
        for row in table.rows:
            yield "".join(map(index, row))
    yield "# world tp pp cp ep etp dp edp, then dense.expert:orders"
    yield "[records]"
    yield from records
    kinds = sorted({row[-1] for row in source["rejected"]})
    yield "[rules]"
    yield from kinds
    yield "# world tp pp cp ep etp, then rule:orders"
    yield "[rejected]"
    yield from by_order(
        source["rejected"],
        lambda row: tuple(row[:6]),
        lambda row: row[6],
        lambda row: kinds.index(row[-1]),
    )
    yield "[combo]"
    for row in combo.rows:
        yield "".join(map(index, row))
    yield "# generator world tp cp_or_ep dp pp, then combo:orders"
    yield "[combos]"
    yield from combos
    yield from optional_features(source)
    yield from headline(source)


def optional_features(source):
    short = {
        "tensor_model_parallel_size": "tp",
        "pipeline_model_parallel_size": "pp",
        "context_parallel_size": "cp",
        "expert_model_parallel_size": "ep",
        "order": "order",
        "hierarchical_context_parallel_sizes": "hcp",
        "num_distributed_optimizer_instances": "instances",
        "create_gloo_process_groups": "gloo",
    }
    yield "[extras]"
    for row in source["extras"]:
        if row["feature"] == "rank_offset":
            sizes = [row["tp"], row.get("cp", row.get("ep")), row["dp"], row["pp"]]
            yield f"rank_offset {row['generator']} {' '.join(map(str, sizes))} {row['order']} {row['rank_offset']}"
            for axes, groups in row["groups"].items():
                yield f"groups {axes} {shape(groups)}"
            continue
        args = [f"world={row['world']}"]
        for name, value in row["args"].items():
            value = runs(value) if isinstance(value, list) else value
            args.append(f"{short[name]}={value}")
        yield f"{row['feature']} {' '.join(args)}"
        for version in ("core_v0.12.1", "core_v0.15.3"):
            answer = row[version]
            if "error" in answer:
                yield f"refused {version} {answer['error']}"
            else:
                yield f"calls {version} {answer['new_group_calls']} {calls(answer['log'])}"


def headline(source):
    yield "# world tp pp cp ep etp order new_group_calls; then a line for each rank"
    yield "[headline]"
    groups = ("tp", "pp", "dp", "dp-cp", "cp", "tp-cp", "ep", "etp", "etp-ep", "edp")
    for row in source["headline"]:
        if "new_group_calls" not in row:
            continue  # Refused with this order; it stands among the rejected ones too.
        head = [row[name] for name in ("world", "tp", "pp", "cp", "ep", "etp_argument")]
        yield " ".join(map(optional, head + [row["order"], row["new_group_calls"]]))
        for rank in row.get("per_rank", []):
            places = [f"{rank[name][0]}/{rank[name][1]}" for name in groups]
            others = [rank[name] for name in ("tp_src", "mp_src", "dp_src", "dp_cp_src")]
            others += [rank[name] for name in ("pp_first", "pp_last", "pp_next", "pp_prev")]
            others += [int(rank[name]) for name in ("in_embd", "in_pos_embd")]
            yield f"rank {rank['rank']} {' '.join(places)} {' '.join(map(str, others))}"


def mindspeed(source):
    yield f"# Made by compact.py from recorded calls of {source['source']}."
    for row in source["rows"]:
        log = calls([(name, "d", None, ranks) for name, ranks in row["log"]]).replace(":d:-=", "=")
        if row["feature"] == "context_parallel":
            names = ("world", "tp", "pp", "cp", "ulysses_degree", "window")
            numbers = " ".join(str(row[name]) for name in names)
            flags = f"{row['algo']} {int(row['send_recv_overlap'])}"
            yield f"cp {numbers} {flags}"
            yield f"log {log}"
            for rank, lists in enumerate(row.get("per_rank") or []):
                yield f"rank {rank} " + " ".join("-" if x is None else runs(x) for x in lists)
        else:
            names = ("world", "tp", "pp", "cp", "tp_x", "tp_y")
            yield "tp2d " + " ".join(str(row[name]) for name in names)
            yield f"log {log}"
            for rank, (ranks, _) in enumerate(row["tp_y_union_cp_per_rank"]):
                yield f"rank {rank} {runs(ranks)}"


def vllm_options(row, options):
    """The words that follow the sizes in a layout of vLLM: `+dense+lmhead=2`."""
    moe, nodes = row[7], row[8]
    words = [] if moe else ["dense"]
    words += [f"nodes={nodes}"] if nodes > 1 else []
    flags = {"fc3": "multistream_overlap_gate"}
    flags |= {name: name for name in ("eplb", "dynamic_eplb", "mlp_optimize", "layer_sharding", "dsa_cp")}
    for name, value in options[row[9]].items():
        if name == "p_tp":
            names = ("pd_tp_ratio", "pd_head_ratio", "num_head_replica")
            words += [f"{word}={size}" for word, size in zip(names, value)]
        elif name in flags:
            words.append(flags[name])
        else:
            words.append(f"{name}={value}")
    return "".join("+" + word for word in words) or "-"


def vllm(source):
    yield "# Made by compact.py from recorded calls of vllm-ascend v0.11.0 to v0.25.1rc1."
    yield "# bit, version"
    yield "[versions]"
    for version in source["source"]:
        yield f"{version['bit']} {version['vllm_ascend']}"
    yield "[coordinators]"
    for name, settings in source["coordinators"].items():
        for (buffer, queue, _), versions in settings:
            yield f"{name} {optional(buffer)} {int(queue)} {','.join(versions)}"
    yield "[sequences]"
    yield from map(" ".join, source["sequences"])
    yield "[partitions]"
    yield from map(shape, source["partitions"])
    head = "versions world tp pp pcp dcp dp"
    yield f"# {head} options sequence remarks partitions"
    yield "[records]"
    for row in source["records"]:
        remarks = ",".join(row[11]) or "-"
        sizes = " ".join(map(str, row[:7]))
        yield f"{sizes} {vllm_options(row, source['options'])} {row[10]} {remarks} {''.join(map(index, row[12]))}"
    yield f"# {head} options rule"
    yield "[rejected]"
    for row in source["rejected"]:
        yield f"{' '.join(map(str, row[:7]))} {vllm_options(row, source['options'])} {row[12]}"
    yield "# tp pp pcp dp engine world ranks"
    yield "[engines]"
    for row in source["rank_map"]:
        yield f"{' '.join(map(str, row[:6]))} {runs(row[6])}"


def main():
    for name, path, make in (
        ("layout_megatron.txt", sys.argv[1], megatron),
        ("layout_mindspeed.txt", sys.argv[2], mindspeed),
        ("layout_vllm.txt", sys.argv[3], vllm),
    ):
        source = json.loads(Path(path).read_text())
        (HERE / name).write_text("\n".join(make(source)) + "\n")


if __name__ == "__main__":
    main()
