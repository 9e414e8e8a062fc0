//! What the built-in table decides, and what a user's rules change.

use super::super::registry::{find, planned};
use super::*;

#[test]
fn the_built_in_table_decides_every_case() {
    let table = Table::built_in();
    for collective in planned() {
        for links in Links::ALL {
            for n in [1, 2, 3, 8, 64, 10_000] {
                for bytes in [0, 1, 16 << 10, 1 << 20, 1 << 33] {
                    let algorithm = table
                        .select(collective, bytes, n, links)
                        .expect("a rule fits");
                    assert!(algorithm.collectives.contains(&collective));
                    assert_eq!(algorithm.links, links, "{collective} {}", algorithm.name);
                }
            }
        }
    }
    assert_eq!(
        select(Collective::Send, 1, 2, Links::Message).map(|a| a.name),
        Err(SelectError::NoRule {
            collective: Collective::Send
        })
    );
}

#[test]
fn the_first_rule_that_fits_decides_and_the_users_rules_come_first() {
    let table = Table::with_overrides(
        "# mine\n\nall_reduce n<4 bytes<1KiB -> ring # small\nall_reduce n>=4 links=message -> ring\n",
    )
    .expect("legal");
    let name = |bytes, n, links| {
        table
            .select(Collective::AllReduce, bytes, n, links)
            .map(|a| a.name)
    };
    assert_eq!(name(1023, 3, Links::Direct), Ok("ring"));
    assert_eq!(name(1024, 3, Links::Message), Ok("recursive_doubling"));
    assert_eq!(name(8, 4, Links::Message), Ok("ring"));
    assert_eq!(name(8, 4, Links::Direct), Ok("direct_small"));
}

#[test]
fn a_rule_may_name_the_entry_and_a_segment_and_marks_tell_them_apart() {
    let table = Table::with_overrides(
        "all_reduce bytes<=4KiB -> entry\nall_reduce n<4 -> direct segment=256KiB\nall_reduce -> ring\n",
    )
    .expect("legal");
    assert_eq!(table.own_rules(), 3);
    let choose = |bytes, n| {
        let spread = Spread::plain(n, Links::Direct);
        let choice = table.choose(Collective::AllReduce, bytes, spread);
        let choice = choice.expect("a rule fits");
        (choice.segment, choice.mark(Collective::AllReduce))
    };
    let marks = [choose(8, 2), choose(8192, 2), choose(8192, 8)];
    assert_eq!(
        marks.map(|(segment, _)| segment),
        [None, Some(256 << 10), None]
    );
    let names = marks.map(|(_, mark)| marked(Collective::AllReduce, mark));
    let wanted = ["entry", "direct segment=256KiB", "ring"].map(|name| Some(name.to_owned()));
    assert_eq!(names, wanted);
    let built_in = choose_built_in();
    assert_eq!(
        (
            built_in.mark(Collective::AllReduce),
            marked(Collective::AllReduce, 0)
        ),
        (0, None)
    );
    for collective in planned() {
        assert!(
            choices_for(collective).count() < 16,
            "a mark has four bits for {collective}"
        );
    }
    for wrong in [
        "all_reduce -> direct segment=3KiB",
        "all_reduce -> direct segment=2MiB",
        "all_reduce -> ring segment=64KiB",
        "all_reduce -> entry segment=64KiB",
        "all_reduce -> direct slices=4",
    ] {
        let error = Table::with_overrides(wrong).expect_err("not legal");
        assert!(
            matches!(error.kind, TableErrorKind::Segment { .. }),
            "{wrong}: {error}"
        );
    }
    let error = Table::with_overrides("all_to_all_v -> entry").expect_err("sizes are unknown");
    assert!(
        matches!(error.kind, TableErrorKind::Unknown { .. }),
        "{error}"
    );
}

fn choose_built_in() -> Choice {
    let spread = Spread::plain(2, Links::Direct);
    choose(Collective::AllReduce, 8, spread).expect("a rule fits")
}

#[test]
fn plans_of_two_levels_are_for_hosts_with_several_ranks() {
    let name = |n, hosts, links| {
        let spread = Spread { n, hosts, links };
        let choice = choose(Collective::AllReduce, 1 << 20, spread);
        choice.expect("a rule fits").algorithm.name
    };
    assert_eq!(name(8, 2, Links::Message), "hierarchical");
    assert_eq!(name(8, 8, Links::Message), "halving_doubling");
    assert_eq!(name(8, 1, Links::Message), "halving_doubling");
    assert_eq!(name(8, 1, Links::Direct), "direct");
    let spread = Spread {
        n: 8,
        hosts: 2,
        links: Links::Message,
    };
    for collective in planned() {
        let name = |bytes| {
            let choice = choose(collective, bytes, spread).expect("a rule fits");
            choice.algorithm.name
        };
        let has_two_levels = find(collective, "hierarchical").is_ok();
        assert_eq!(name(64) == "hierarchical", has_two_levels, "{collective}");
        // Much of this goes without a detour.
        let is_straight = matches!(
            collective,
            Collective::AllToAll
                | Collective::Gather
                | Collective::GatherV
                | Collective::Scatter
                | Collective::ScatterV
        );
        let wanted = has_two_levels && !is_straight;
        assert_eq!(name(1 << 24) == "hierarchical", wanted, "{collective}");
    }
    let table = Table::with_overrides("broadcast hosts>=3 -> binomial_tree").expect("legal");
    for (hosts, wanted) in [(2, "hierarchical"), (3, "binomial_tree")] {
        let spread = Spread {
            n: 8,
            hosts,
            links: Links::Message,
        };
        let choice = table
            .choose(Collective::Broadcast, 8, spread)
            .expect("a rule fits");
        assert_eq!(choice.algorithm.name, wanted);
    }
    for wrong in ["hosts", "hosts<m", "hosts>-1", "hosts<2KiB"] {
        Table::with_overrides(&format!("broadcast {wrong} -> linear")).expect_err(wrong);
    }
}

#[test]
fn an_override_that_cannot_be_carried_out_is_an_error_and_not_another_algorithm() {
    let table = Table::with_overrides("\nbroadcast n>2 -> direct").expect("legal");
    let error = table
        .select(Collective::Broadcast, 8, 3, Links::Message)
        .map(|a| a.name)
        .expect_err("direct needs shared memory");
    assert_eq!(
        error,
        SelectError::NeedsDirectLinks {
            collective: Collective::Broadcast,
            algorithm: "direct",
            line: 2,
            is_built_in: false
        }
    );
    assert!(
        error.to_string().contains("line 2 of the user's"),
        "{error}"
    );
}

#[test]
fn a_wrong_line_is_named_with_what_would_be_understood() {
    let error = |text: &str| Table::with_overrides(text).expect_err("not legal");
    let found = error("\n\nall_redcue -> ring");
    assert_eq!(found.line, 3);
    assert!(
        found.to_string().contains("did you mean all_reduce?"),
        "{found}"
    );
    let found = error("all_reduce -> rign").to_string();
    assert!(found.contains("did you mean ring?"), "{found}");
    let found = error("all_reduce byte<3 -> ring").to_string();
    assert!(found.contains("did you mean bytes?"), "{found}");
    for wrong in [
        "bytes<3MB",
        "bytes<",
        "n<x",
        "n",
        "links=shm",
        "n<-1",
        "bytes<99999999999GiB",
    ] {
        let found = error(&format!("all_reduce {wrong} -> ring"));
        assert!(
            matches!(found.kind, TableErrorKind::Condition { .. }),
            "{wrong}"
        );
    }
    for wrong in [
        "all_reduce ring",
        "all_reduce ->",
        "all_reduce -> ring ring",
        "->",
    ] {
        error(wrong);
    }
    assert_eq!(
        error("barrier links=message -> direct").kind,
        TableErrorKind::Links {
            algorithm: "direct"
        }
    );
    assert_eq!(
        error("all_to_all_v bytes<3 -> pairwise").kind,
        TableErrorKind::BytesUnknown
    );
    assert_eq!(
        error(&"\n".repeat(MAX_LINES + 1)).kind,
        TableErrorKind::Long
    );
}
