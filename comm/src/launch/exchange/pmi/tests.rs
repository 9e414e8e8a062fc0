//! The client against a launcher that says what a test tells it to, over a pair of sockets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// What Hydra 4.0 answers to a rank that gets.
const RIGHT: [&str; 5] = [
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
    "cmd=my_kvsname kvsname=kvs_314_0_343737473_vm\n",
    "cmd=barrier_out\n",
    "cmd=get_result rc=0 msg=success value=10.0.0.1:4000\n",
    "cmd=finalize_ack\n",
];
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

/// Answers one command after the other, and returns the commands. It then stays until the client has gone.
fn launcher(stream: UnixStream, answers: &[&[u8]]) -> Vec<String> {
    let mut lines = BufReader::new(stream);
    let mut asked = Vec::new();
    let mut answers = answers.iter();
    loop {
        let mut line = String::new();
        // A client that is content with less than it was told leaves something unread.
        if lines.read_line(&mut line).unwrap_or(0) == 0 {
            return asked;
        }
        asked.push(line);
        if let Some(answer) = answers.next() {
            let _ = lines.get_mut().write_all(answer);
        }
    }
}

/// What a client makes of these answers, and what it asked.
fn told(
    answers: &[&[u8]],
    value: Option<&str>,
    within: Duration,
) -> (Result<String, ExchangeError>, Vec<String>) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    std::thread::scope(|scope| {
        let launcher = scope.spawn(|| launcher(theirs, answers));
        let outcome = exchange(ours, value, Deadline::after(within));
        (outcome, launcher.join().expect("it ends with the client"))
    })
}

fn bytes<const N: usize>(lines: [&str; N]) -> [&[u8]; N] {
    lines.map(str::as_bytes)
}

#[test]
fn rank_0_puts_and_another_rank_gets_after_the_barrier() {
    let (got, asked) = told(&bytes(RIGHT), None, LONG);
    assert_eq!(got.as_deref(), Ok("10.0.0.1:4000"));
    let name = "kvsname=kvs_314_0_343737473_vm";
    let get = format!("cmd=get {name} key=muster-rendezvous\n");
    let expected = [
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=get_my_kvsname\n",
        "cmd=barrier_in\n",
        &get,
        "cmd=finalize\n",
    ];
    assert_eq!(asked, expected);
    let mut answers = RIGHT;
    answers[3] = "cmd=barrier_out\n";
    answers[2] = "cmd=put_result rc=0 msg=success\n";
    let (put, asked) = told(&bytes(answers), Some("10.0.0.1:4000"), LONG);
    assert_eq!(put.as_deref(), Ok("10.0.0.1:4000"));
    let put = format!("cmd=put {name} key=muster-rendezvous value=10.0.0.1:4000\n");
    assert_eq!(asked[2..4], [put.as_str(), "cmd=barrier_in\n"]);
}

#[test]
fn what_is_not_the_answer_is_an_error_that_shows_it() {
    for (at, said, allowed) in [
        (0, "cmd=response_to_init rc=-1\n", "response_to_init"),
        (1, "cmd=my_kvsname\n", "my_kvsname"),
        (1, "cmd=my_kvsname kvsname=\n", "my_kvsname"),
        (2, "cmd=spawn_result rc=0\n", "barrier_out"),
        (
            3,
            "cmd=get_result rc=-1 msg=key_not_found value=unknown\n",
            "get_result",
        ),
        (3, "hello\n", "get_result"),
        (4, "\n", "finalize_ack"),
    ] {
        let mut answers = RIGHT;
        answers[at] = said;
        let (got, _) = told(&bytes(answers), None, LONG);
        let Err(ExchangeError::Answer {
            said: shown,
            allowed: wanted,
            ..
        }) = got
        else {
            panic!("{said:?}: {got:?}");
        };
        assert_eq!((shown.as_str(), wanted), (said.trim_end(), allowed));
    }
}

#[test]
fn a_line_without_an_end_is_an_error() {
    let mut answers = bytes(RIGHT);
    let endless = vec![b'x'; 3 * LINE_BYTES_MAX];
    answers[1] = &endless;
    let (got, _) = told(&answers, None, LONG);
    assert!(matches!(got, Err(ExchangeError::Answer { .. })), "{got:?}");
}

#[test]
fn a_launcher_that_hangs_is_waited_for_until_the_deadline_and_a_barrier_is_told_apart() {
    for answered in 0..RIGHT.len() {
        let (got, asked) = told(&bytes(RIGHT)[..answered], None, SHORT);
        assert_eq!(asked.len(), answered + 1);
        let error = got.expect_err("it hangs");
        let is_barrier = matches!(error, ExchangeError::Barrier { waited_ms } if waited_ms >= 50);
        let is_silent = matches!(error, ExchangeError::Silent { waited_ms, .. } if waited_ms >= 50);
        assert!(
            if answered == 2 { is_barrier } else { is_silent },
            "{error}"
        );
        assert_eq!(error.exit_code(), if answered == 2 { 10 } else { 12 });
    }
}

#[test]
fn a_launcher_that_has_closed_the_descriptor_is_told() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    drop(theirs);
    let error = exchange(ours, None, Deadline::after(LONG)).expect_err("nobody is there");
    assert!(matches!(error, ExchangeError::Descriptor { .. }), "{error}");
}

proptest! {
    #[test]
    fn mutated_answers_lead_to_a_value_or_to_an_error(
        places in prop::collection::vec((0..5_usize, any::<prop::sample::Index>(), any::<u8>()), 1..6),
        puts in any::<bool>(),
    ) {
        let mut answers: Vec<Vec<u8>> = RIGHT.iter().map(|line| line.as_bytes().to_vec()).collect();
        for (line, place, byte) in places {
            let at = place.index(answers[line].len());
            answers[line][at] = byte;
        }
        let answers: Vec<&[u8]> = answers.iter().map(Vec::as_slice).collect();
        let (got, _) = told(&answers, puts.then_some("10.0.0.1:4000"), Duration::from_millis(20));
        prop_assert!(got.is_err() || got.is_ok_and(|value| !value.is_empty()));
    }
}
