//! The groups that MindSpeed adds to a layout.

use muster_comm::layout::{CpAlgorithm, CpOptions, FrameworkLayout, Groups, Layout};

use super::{Entry, GroupsArgs, GroupsError, Lists, entry};

/// Refuses MindSpeed's options for a layout that is not Megatron's.
pub(super) fn refuse(args: &GroupsArgs, layout: &FrameworkLayout) -> Result<(), GroupsError> {
    let options = [
        ("--ulysses-degree", args.ulysses_degree.is_some()),
        ("--cp-window-size", args.cp_window_size.is_some()),
        ("--send-recv-overlap", args.send_recv_overlap),
        ("--attention-heads", args.attention_heads.is_some()),
        ("--tp-x", args.tp_x.is_some()),
        ("--tp-extend-ep", args.tp_extend_ep.is_some()),
    ];
    match options.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(GroupsError::MegatronOnly(option, layout.to_string())),
        None => Ok(()),
    }
}

/// The groups that MindSpeed adds.
pub(super) fn add(
    args: &GroupsArgs,
    layout: &Layout,
    entries: &mut Vec<Entry>,
) -> Result<(), GroupsError> {
    mindspeed_cp(args, layout, entries)?;
    if let (Some(tp_x), Some(tp_y)) = (args.tp_x, args.tp_y) {
        let groups = layout.mindspeed_tp_2d(tp_x, tp_y)?;
        entries.extend([
            entry(
                "nd1_dim1",
                "MindSpeed TP-2D: tp_x neighbours",
                groups.nd1_dim1,
            ),
            entry(
                "nd1_dim2",
                "MindSpeed TP-2D: every tp_x-th",
                groups.nd1_dim2,
            ),
            entry(
                "nd2_dim1",
                "MindSpeed TP-2D: tp_y neighbours",
                groups.nd2_dim1,
            ),
            entry(
                "nd2_dim2",
                "MindSpeed TP-2D: every tp_y-th",
                groups.nd2_dim2,
            ),
            entry(
                "tp-y-cp",
                "MindSpeed TP-2D: nd1_dim2 along cp",
                groups.tp_y_cp,
            ),
        ]);
    }
    if let Some(experts) = args.tp_extend_ep {
        let groups = layout.mindspeed_tp_extend_ep(experts)?.groups;
        entries.push(entry(
            "tp-extend-ep",
            "MindSpeed: whole experts over tp*ep",
            groups,
        ));
    }
    Ok(())
}

fn mindspeed_cp(
    args: &GroupsArgs,
    layout: &Layout,
    entries: &mut Vec<Entry>,
) -> Result<(), GroupsError> {
    let wanted = args.ulysses_degree.is_some()
        || args.cp_window_size.is_some()
        || args.attention_heads.is_some()
        || args.send_recv_overlap;
    if !wanted {
        return Ok(());
    }
    let hybrid = |ulysses_degree| CpAlgorithm::Hybrid { ulysses_degree };
    let groups = layout.mindspeed_cp(&CpOptions {
        algorithm: args.ulysses_degree.map_or(CpAlgorithm::Ring, hybrid),
        window: args.cp_window_size.unwrap_or(1),
        send_recv_overlap: args.send_recv_overlap,
        attention_heads: args.attention_heads,
    })?;
    let mut optional = |name, meaning, groups: Option<Groups>| {
        entries.extend(groups.map(|groups| entry(name, meaning, groups)));
    };
    optional("cp2", "MindSpeed: second cp communicator", groups.cp2);
    optional("cp_ulysses", "MindSpeed: Ulysses inside cp", groups.ulysses);
    optional("cp_ring", "MindSpeed: ring inside cp", groups.ring);
    let twin = groups.intra_overlap.then(|| groups.intra.clone());
    optional("cp_ring_intra", "MindSpeed: inner ring", Some(groups.intra));
    optional(
        "cp_ring_intra_overlap",
        "MindSpeed: second inner ring",
        twin,
    );
    optional(
        "cp_ring_inter_kv",
        "MindSpeed: route of kv (no group)",
        Some(groups.inter_kv),
    );
    entries.push(Entry {
        name: "cp_ring_inter_dkv",
        meaning: "MindSpeed: route of kv gradients (no group)",
        lists: Lists::Routes(groups.inter_dkv),
    });
    Ok(())
}
