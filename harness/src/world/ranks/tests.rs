//! Shells as ranks: who they are, how they end, and that nothing of them is left.

use super::*;

const BOUND: Duration = Duration::from_secs(20);

fn shell(script: &str, world_size: u32) -> Ranks<Event> {
    let args = [OsString::from("-c"), OsString::from(script)];
    Ranks::start(
        &Spawn {
            program: Path::new("/bin/sh"),
            args: &args,
            world_size,
            env: &[("EXTRA".to_owned(), "yes".to_owned())],
            secret: b"s3cret",
            printer: None,
            torch: false,
        },
        None,
    )
    .expect("the ranks start")
}

fn ends(ranks: &mut Ranks<Event>) -> Vec<Option<Ended>> {
    let deadline = Deadline::after(BOUND);
    while !ranks.all_ended() {
        match ranks.next(deadline) {
            Some(Event::Ended { rank, how }) => ranks.note_end(rank, how),
            Some(Event::Interrupted) => {}
            None => panic!("the ranks did not end within {BOUND:?}"),
        }
    }
    ranks.processes().iter().map(RankProcess::ended).collect()
}

fn printed(ranks: &Ranks<Event>, rank: usize) -> String {
    ranks.processes()[rank].output(|capture| capture.lines().join("\n"))
}

#[test]
fn each_rank_knows_who_it_is_and_gets_the_secret_through_its_pipe() {
    let mut ranks = shell(
        "echo rank $MUSTER_RANK of $MUSTER_WORLD_SIZE, $EXTRA; cat /dev/fd/$MUSTER_SECRET_FD; echo; echo oops >&2; exit $MUSTER_RANK",
        3,
    );
    assert_eq!(
        ends(&mut ranks),
        [0, 1, 2].map(|code| Some(Ended::Exited(code)))
    );
    for rank in 0..3 {
        assert_eq!(
            printed(&ranks, rank),
            format!("rank {rank} of 3, yes\ns3cret\noops")
        );
    }
}

#[test]
fn the_signal_that_ended_a_rank_is_told() {
    let mut ranks = shell("kill -9 $$", 2);
    assert_eq!(ends(&mut ranks), [Some(Ended::Signaled(9)); 2]);
}

#[test]
fn a_rank_that_prints_without_end_neither_blocks_nor_grows() {
    let mut ranks = shell("head -c 5000000 /dev/zero; echo; echo done", 1);
    assert_eq!(ends(&mut ranks), [Some(Ended::Exited(0))]);
    let text = printed(&ranks, 0);
    assert!(
        text.ends_with("done"),
        "{}",
        &text[text.len().saturating_sub(100)..]
    );
    assert!(text.contains("bytes of output dropped"));
}

#[test]
fn dropping_a_world_ends_and_reaps_ranks_that_ignore_requests() {
    let ranks = shell("trap '' TERM INT; while :; do sleep 1; done", 3);
    ranks.signal_all(Signal::TERM);
    let pids: Vec<u32> = ranks.processes().iter().map(RankProcess::pid).collect();
    drop(ranks);
    for pid in pids {
        assert!(
            !Path::new(&format!("/proc/{pid}/stat")).exists(),
            "process {pid} is left"
        );
    }
}

#[test]
fn a_program_that_does_not_exist_is_named_with_the_rank() {
    let started = Ranks::<Event>::start(
        &Spawn {
            program: Path::new("/nonexistent/program"),
            args: &[],
            world_size: 2,
            env: &[],
            secret: b"",
            printer: None,
            torch: false,
        },
        None,
    );
    let failure = started.expect_err("cannot start");
    assert!(
        failure.message.contains("rank 0 of 2 cannot be started"),
        "{failure}"
    );
}
