//! `muster tap` over the emulator: programs in C that know nothing of muster, one fault each, and the verdict on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use muster_comm::sync::Clock;
use muster_tests::{binary, skipped, start, until};
use rustix::process::Signal;

use crate::toolkit::Toolkit;

const RANKS: &str = "4";
/// Long enough for a reader to find the processes.
const SHORT: Duration = Duration::from_millis(500);

/// A client, compiled against the headers of an emulated toolkit.
struct Client {
    toolkit: Toolkit,
    folder: tempfile::TempDir,
}

/// How a client gets at HCCL.
#[derive(Clone, Copy)]
enum Way {
    Linked,
    Loaded,
    /// As Loaded, and names that it has itself go before all others.
    DeepBind,
}

impl Client {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let toolkit = Toolkit::install();
        Self { toolkit, folder }
    }

    fn compile(&self, way: Way) -> PathBuf {
        let home = self.toolkit.home();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/tap.c");
        let program = self.folder.path().join("client");
        let mut command = Command::new("cc");
        command
            .args([
                "-std=gnu11",
                "-O1",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wl,-z,now",
            ])
            .arg(format!("-I{home}/include"))
            .arg(source)
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{home}/lib64"));
        match way {
            Way::Linked => command.args(["-lhccl", "-lascendcl"]),
            Way::Loaded => command.args(["-DLOADED=RTLD_LOCAL", "-lascendcl", "-ldl"]),
            Way::DeepBind => command.args(["-DLOADED=RTLD_DEEPBIND", "-lascendcl", "-ldl"]),
        };
        let output = command.output().expect("the system has a C compiler");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        program
    }

    /// Runs it with a fault under the tap; the exit code, and what was printed.
    fn run(
        &self,
        program: &Path,
        fault: &str,
        victim: u32,
        variables: &[(&str, &str)],
    ) -> (i32, String) {
        let program = program.to_str().expect("text");
        self.watch(&[program], fault, victim, variables, &[])
    }

    /// As [`Self::run`], for a program that is several words, with options of the tap.
    fn watch(
        &self,
        program: &[&str],
        fault: &str,
        victim: u32,
        variables: &[(&str, &str)],
        options: &[&str],
    ) -> (i32, String) {
        let meeting = tempfile::tempdir_in(self.folder.path()).expect("a folder");
        let victim = victim.to_string();
        let meeting = meeting.path().to_str().expect("text");
        let library_path = format!("{}/lib64", self.toolkit.home());
        let mut all = vec![("LD_LIBRARY_PATH", library_path.as_str())];
        all.extend_from_slice(variables);
        let mut words = vec!["tap", "run", "--after", "3", "--on-verdict", "abort"];
        words.extend(options);
        words.push("--");
        words.extend(program);
        words.extend([RANKS, meeting, fault, &victim]);
        let ended = self.toolkit.run(&words, &all);
        (
            ended.code.expect("no signal"),
            format!("{}{}", ended.stdout, ended.stderr),
        )
    }
}

/// The verdict of the tap: the first one, since the emulator may have one of its own when it is ended.
fn verdict(said: &str) -> &str {
    let found = said.lines().find(|line| line.starts_with("VERDICT "));
    assert!(found.is_some(), "no verdict in {said}");
    found.unwrap_or_default()
}

#[test]
fn a_program_that_is_well_hears_nothing_however_it_gets_at_hccl() {
    let client = Client::new();
    for way in [Way::Linked, Way::Loaded, Way::DeepBind] {
        let program = client.compile(way);
        let (code, said) = client.run(&program, "none", 0, &[]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(said.matches(" well\n").count(), 4, "{said}");
        assert!(
            !said.contains("VERDICT") && !said.contains("the tap saw no process"),
            "{said}"
        );
    }
}

#[test]
fn a_profiler_and_an_allocator_that_are_loaded_before_the_tap_keep_their_calls() {
    let client = Client::new();
    let program = client.compile(Way::Linked);
    let profiler = client.folder.path().join("profiler.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/profiler.c");
    let include = format!("-I{}/include", client.toolkit.home());
    let mut command = Command::new("cc");
    command
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            &include,
        ])
        .arg(source)
        .arg("-o")
        .arg(&profiler);
    let output = command.output().expect("the system has a C compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let preload = [("LD_PRELOAD", profiler.to_str().expect("text"))];
    let (code, said) = client.run(&program, "none", 0, &preload);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches(" calls and events").count(), 4, "{said}");
    assert!(
        !said.contains("VERDICT") && !said.contains(NOBODY),
        "{said}"
    );
    // An event on a stream that is being captured would end the capture.
    let captures = [preload[0], ("PROFILER_CAPTURES", "1")];
    let (code, said) = client.run(&program, "none", 0, &captures);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches(" calls and no events").count(), 4, "{said}");
    let (code, said) = client.run(&program, "asleep", 2, &preload);
    assert_eq!(code, 22, "{said}");
    assert!(
        verdict(&said).starts_with("VERDICT NOT_JOINED who=rank 2 "),
        "{said}"
    );
}

#[test]
fn processes_that_a_rank_starts_are_no_ranks_and_do_not_stand_for_it() {
    let client = Client::new();
    let program = client.compile(Way::Linked);
    let (code, said) = client.run(&program, "workers", 0, &[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches(" well\n").count(), 4, "{said}");
    assert!(!said.contains("VERDICT"), "{said}");
    let (code, said) = client.run(&program, "killed-beside-worker", 1, &[]);
    assert_eq!(code, 20, "{said}");
    assert!(
        verdict(&said).starts_with("VERDICT PEER_DEAD who=rank 1 "),
        "{said}"
    );
}

/// A vendor's library that does nothing, and a program that looks how it finds it.
struct Finder {
    client: Client,
}

impl Finder {
    fn new() -> Self {
        let client = Client::new();
        let finder = Self { client };
        let make = |name: &str, source: &str, options: &[&str]| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("data")
                .join(source);
            let file = finder.path(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            let mut command = Command::new("cc");
            command
                .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"])
                .arg(source)
                .arg("-o")
                .arg(&file);
            let output = command.args(options).output().expect("a C compiler");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        };
        let library = |name: &str, folder: &str, options: &[&str]| {
            let soname = format!("-Wl,-soname,{name}");
            let mut all = vec!["-shared", "-fPIC", &soname];
            all.extend(options);
            make(&format!("{folder}/{name}"), "vendor.c", &all);
        };
        let new = finder.text("new");
        library("libhcomm.so", "new", &["-DCOMMUNICATORS"]);
        let needs = ["-DOPERATORS", "-Wl,--no-as-needed", "-L", &new, "-lhcomm"];
        library("libhccl.so", "new", &needs);
        library("libhccl.so", "old", &[]);
        make("finds", "finds.c", &["-ldl"]);
        finder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.client.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    /// What it finds of these names in a library, with the tap in front of the vendor's in `folder`, started by these words.
    fn finds(&self, folder: &str, words: &[&str], library: &str, names: &[&str]) -> String {
        let hccl = self.text(&format!("{folder}/libhccl.so"));
        let finds = self.text("finds");
        let mut all = vec!["tap", "run", "--hccl", &hccl, "--"];
        all.extend(words);
        all.extend([finds.as_str(), library]);
        all.extend(names);
        let vendor = self.text(folder);
        let ended = self
            .client
            .toolkit
            .run(&all, &[("LD_LIBRARY_PATH", &vendor), ("VENDOR", &vendor)]);
        ended.expect_code(0);
        format!("{}{}", ended.stdout, ended.stderr)
    }
}

const NOBODY: &str = "the tap saw no process";

#[test]
fn the_tap_has_both_names_of_the_library_and_no_function_that_the_vendor_lacks() {
    let finder = Finder::new();
    let names = ["HcclGroupStart", "HcclBarrier", "HcclNothing", "HcclSend"];
    for library in ["libhcomm.so", "libhccl.so"] {
        let said = finder.finds("new", &[], library, &names);
        let found = "HcclGroupStart found\nHcclBarrier found\nHcclNothing missing\nHcclSend missing\nmade 0\n";
        assert!(said.contains(found) && !said.contains(NOBODY), "{said}");
    }
    let said = finder.finds("old", &[], "libhccl.so", &names);
    let found = "HcclGroupStart missing\nHcclBarrier found\nHcclNothing missing\nHcclSend missing\nmade 0\n";
    assert!(said.contains(found) && !said.contains(NOBODY), "{said}");
}

#[test]
fn a_command_that_puts_the_vendors_folder_first_is_watched_where_the_tap_is_loaded_before_it() {
    let finder = Finder::new();
    let sets = [
        "sh",
        "-c",
        "LD_LIBRARY_PATH=$VENDOR:$LD_LIBRARY_PATH exec \"$@\"",
        "sh",
    ];
    let said = finder.finds("new", &sets, "libhcomm.so", &[]);
    assert!(said.contains(NOBODY), "{said}");
    let program = binary().to_str().expect("text");
    let within: Vec<&str> = [program, "tap", "exec", "--"]
        .into_iter()
        .chain(sets)
        .collect();
    for library in ["libhcomm.so", "libhccl.so"] {
        let said = finder.finds("new", &within, library, &["HcclGroupStart", "HcclSend"]);
        let found = "HcclGroupStart found\nHcclSend missing\nmade 0\n";
        assert!(said.contains(found) && !said.contains(NOBODY), "{said}");
    }

    // Where the tap does not load no program at all would start.
    let tap = finder.text("tap");
    let hccl = finder.text("new/libhccl.so");
    let install = ["tap", "install", &tap, "--hccl", &hccl];
    finder.client.toolkit.run(&install, &[]).expect_code(0);
    std::fs::remove_file(finder.path("tap/libhcomm.muster-real.so")).expect("removed");
    let exec = ["tap", "exec", "--dir", &tap, "--", "true"];
    let ended = finder.client.toolkit.run(&exec, &[]);
    ended.expect_code(60);
    assert!(
        ended.stderr.contains("libhcomm.muster-real.so"),
        "{}",
        ended.stderr
    );
}

#[test]
fn calls_that_differ_are_told_with_the_rank_that_is_alone_however_it_gets_at_hccl() {
    let client = Client::new();
    for (way, fault, victim, what) in [
        (
            Way::Linked,
            "count",
            1,
            "count differs: rank 0 has 1000, rank 1 has 999",
        ),
        (
            Way::Loaded,
            "dtype",
            2,
            "dtype differs: rank 0 has f32, rank 2 has i32",
        ),
        (
            Way::DeepBind,
            "root",
            3,
            "root differs: rank 0 has 0, rank 3 has 1",
        ),
    ] {
        let program = client.compile(way);
        let (code, said) = client.run(&program, fault, victim, &[]);
        let line = verdict(&said);
        assert!(
            line.starts_with(&format!("VERDICT MISMATCH who=rank {victim} (")),
            "{line}"
        );
        assert!(
            line.contains(what) && line.contains("confidence=certain"),
            "{line}"
        );
        assert_eq!(code, 30, "{said}");
    }
}

#[test]
fn a_rank_that_does_not_come_has_died_or_is_stopped_is_named() {
    let client = Client::new();
    let program = client.compile(Way::Linked);
    for (fault, victim, class, place) in [
        (
            "asleep",
            2,
            "NOT_JOINED",
            "running user code, last made all_gather #20",
        ),
        ("killed", 1, "PEER_DEAD", "was killed by signal 9"),
        ("exits", 3, "PEER_DEAD", "exited with code 0 before"),
        ("crashes", 2, "PEER_DEAD", "was killed by signal 11"),
        ("fails", 1, "PEER_DEAD", "exited with code 3"),
        ("stopped", 0, "PEER_FROZEN", "state T (stopped by a signal)"),
        (
            "creation",
            2,
            "NOT_JOINED",
            "has created no communicator so far",
        ),
    ] {
        let (_, said) = client.run(&program, fault, victim, &[]);
        let line = verdict(&said);
        assert!(
            line.starts_with(&format!("VERDICT {class} who=rank {victim}")),
            "{fault}: {line}"
        );
        assert!(line.contains(place), "{fault}: {line}");
    }
}

#[test]
fn nobody_is_named_where_the_launcher_ended_all_ranks() {
    let client = Client::new();
    let program = client.compile(Way::Linked);
    let (code, said) = client.run(&program, "ended", 0, &[]);
    assert_eq!(code, 1, "{said}");
    assert!(!said.contains("VERDICT"), "{said}");
}

#[test]
fn communicators_in_another_order_are_a_deadlock_of_all_who_wait() {
    let client = Client::new();
    let program = client.compile(Way::Linked);
    let (code, said) = client.run(&program, "order", 1, &[]);
    let line = verdict(&said);
    assert!(line.starts_with("VERDICT DEADLOCK who=rank 0 ("), "{line}");
    let circle = "ranks 0,2,3 wait for rank 1 in all_reduce #21 on ";
    assert!(
        line.contains(circle)
            && line.contains("rank 1 waits for ranks 0,2,3 in all_gather #21 on "),
        "{line}"
    );
    assert_eq!(code, 24, "{said}");
}

#[test]
fn calls_of_many_communicators_from_several_threads_are_recorded_and_made_again() {
    let client = Client::new();
    let program = client.compile(Way::Linked);
    let recording = client.folder.path().join("recording");
    let recording = recording.to_str().expect("text");
    let program = [program.to_str().expect("text")];
    let (code, said) = client.watch(&program, "many", 0, &[], &["--record", recording]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("recorded 4 ranks in "), "{said}");
    assert!(!said.contains("left out"), "{said}");
    let replay = ["replay", recording, "--pauses", "none", "--format", "json"];
    let told = client.toolkit.run(&replay, &[]).expect_code(0).json();
    assert_eq!(told["outcome"]["wrong"], 0, "{told}");
    assert_eq!(told["outcome"]["calls"], told["calls"], "{told}");
    assert_eq!(told["cut"].as_array().map(Vec::len), Some(0), "{told}");
}

#[test]
fn a_tap_that_is_switched_off_only_forwards_calls() {
    let client = Client::new();
    let program = client.compile(Way::Linked);
    let (code, said) = client.run(&program, "none", 0, &[("MUSTER_TAP", "0")]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches(" well\n").count(), 4, "{said}");
    assert!(said.contains("the tap saw no process"), "{said}");
}

#[test]
fn who_is_waited_for_is_told_once_before_the_verdict_which_is_kept_and_handed_to_a_command() {
    let client = Client::new();
    let program = client.compile(Way::Linked);
    let dumps = client.folder.path().join("dumps");
    let dump = format!("dump={}", dumps.display());
    let command = "command=echo told: $MUSTER_VERDICT; echo pids: $(echo $MUSTER_VERDICT_PIDS | wc -w) \
                   $(echo $MUSTER_OTHER_PIDS | wc -w); exit 3";
    let options = ["--on-verdict", &dump, "--on-verdict", command];
    let program = program.to_str().expect("text");
    let (code, said) = client.watch(&[program], "asleep", 2, &[], &options);
    assert_eq!(code, 22, "{said}");
    let suspects: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("SUSPECT "))
        .collect();
    let [suspect] = suspects[..] else {
        panic!("one line of a suspect in {said}")
    };
    let waits = "SUSPECT rank 2: waited for by rank ";
    assert!(
        suspect.starts_with(waits) && suspect.contains(" in all_reduce #21 on "),
        "{suspect}"
    );
    let line = verdict(&said);
    assert!(said.find(suspect) < said.find("\nVERDICT "), "{said}");
    assert!(said.contains(&format!("told: {line}\n")), "{said}");
    assert!(said.contains("pids: 1 3\n"), "{said}");
    assert!(
        said.contains("the command of --on-verdict: exit status: 3"),
        "{said}"
    );
    let folder = dumps.to_str().expect("text");
    let explained = client.toolkit.run(&["explain", folder], &[]);
    assert!(explained.stdout.contains(line), "{}", explained.stdout);
    assert!(
        explained.stdout.contains("all_gather"),
        "{}",
        explained.stdout
    );
}

#[test]
fn a_python_program_that_uses_ctypes_shows_where_the_rank_is_that_does_not_come() {
    if Command::new("python3").arg("--version").output().is_err() {
        skipped("there is no python3");
        return;
    }
    let client = Client::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/tap.py");
    let words = ["python3", "-B", source.to_str().expect("text")];
    let (code, said) = client.watch(&words, "none", 0, &[], &[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches(" well\n").count(), 4, "{said}");
    assert!(!said.contains("VERDICT"), "{said}");

    let (code, said) = client.watch(&words, "count", 3, &[], &[]);
    let line = verdict(&said);
    let culprit = "VERDICT MISMATCH who=rank 3 (";
    assert!(line.starts_with(culprit) && code == 30, "{said}");

    let (_, said) = client.watch(&words, "asleep", 1, &[], &[]);
    let line = verdict(&said);
    assert!(
        line.starts_with("VERDICT NOT_JOINED who=rank 1 ("),
        "{line}"
    );
    let stack = "rank 1 is in load_batch (tap.py:16) < train (tap.py:";
    assert!(line.contains(stack), "{line}");
    let variables = [("MUSTER_TAP_STACKS", "0")];
    let (_, said) = client.watch(&words, "asleep", 1, &variables, &[]);
    assert!(!verdict(&said).contains("load_batch"), "{said}");
}

#[test]
fn calls_go_on_while_who_reads_is_killed_or_stopped_and_the_next_reader_has_the_verdict() {
    let client = Client::new();
    let program = client.compile(Way::Linked);
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let tap = text(&client.folder.path().join("tap"));
    let installed = client.toolkit.run(&["tap", "install", &tap], &[]);
    installed.expect_code(0);
    let library_path = format!("{tap}:{}/lib64", client.toolkit.home());
    let job = format!("readers-{}", std::process::id());
    let begin = |fault: &str| {
        let meeting = client.folder.path().join(fault);
        std::fs::create_dir(&meeting).expect("a folder");
        let variables = [
            ("LD_LIBRARY_PATH", library_path.as_str()),
            ("MUSTER_TAP_JOB", &job),
        ];
        start(&program, &[RANKS, &text(&meeting), fault, "1"], &variables)
    };
    let told = client.folder.path().join("told");
    let command = format!("command=touch {}", told.display());
    let read = || {
        let words = [
            "tap",
            "watch",
            "--job",
            &job,
            "--after",
            "2",
            "--on-verdict",
            &command,
        ];
        client.toolkit.begin(&words, &[])
    };

    let running = begin("many");
    let killed = read();
    Clock::pause(SHORT);
    drop(killed);
    let stopped = read();
    Clock::pause(SHORT);
    stopped.signal(Signal::STOP);
    let ended = running.wait();
    ended.expect_code(0);
    assert_eq!(
        ended.stdout.matches(" well\n").count(),
        4,
        "{}",
        ended.stdout
    );
    drop(stopped);

    let hanging = begin("asleep");
    assert!(!told.exists(), "a verdict on a program that is well");
    let next = read();
    until("a verdict", || told.exists());
    // Before the reader, which removes the boards of those who are killed.
    drop(hanging);
    next.signal(Signal::INT);
    let said = next.wait().stderr;
    let line = verdict(&said);
    assert!(
        line.starts_with("VERDICT NOT_JOINED who=rank 1 ("),
        "{line}"
    );
}
