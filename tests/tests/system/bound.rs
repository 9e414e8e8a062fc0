//! Ranks that keep to their processors: as the kernel shows them.

use muster_comm::processors::CpuList;
use muster_tests::{Leftovers, Running, binary, muster, skipped, start, torchrun, until};
use rustix::process::Signal;

const FAULTY: &str = env!("CARGO_BIN_EXE_faulty");
/// A rank that says where it may run.
const TELLS: [&str; 3] = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status"];

/// The list in what `/proc/PID/status` says.
fn allowed(status: &str) -> Option<CpuList> {
    let (_, list) = status.split_once("Cpus_allowed_list:")?;
    CpuList::parse(list.lines().next()?)
}

fn allowed_to(pid: i32) -> Option<CpuList> {
    allowed(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Runs two ranks that say where they may run, and gives back that and what the launcher said.
fn told(bind: &str) -> (Vec<CpuList>, String) {
    let args = [&["run", "-n", "2", "--bind", bind, "--"], &TELLS[..]].concat();
    let ended = muster(&args);
    ended.expect_code(0);
    let lists: Vec<CpuList> = ended.stdout.lines().filter_map(allowed).collect();
    assert_eq!(lists.len(), 2, "{ended:?}");
    (lists, ended.stderr)
}

/// Does something in a thread that may use one processor only, and gives back which.
fn on_one_processor<T: Send>(work: impl FnOnce() -> T + Send) -> (CpuList, T) {
    let narrowed = || {
        let own = CpuList::of_this_thread().expect("a mask");
        let one = CpuList::from_iter(own.numbers().take(1));
        one.keep_to().expect("one of ours");
        (one, work())
    };
    std::thread::scope(|scope| scope.spawn(narrowed).join()).expect("no panic")
}

fn has_two_processors() -> bool {
    let has = CpuList::of_this_thread().is_some_and(|own| own.count() > 1);
    if !has {
        skipped("one processor cannot be divided");
    }
    has
}

#[test]
fn ranks_of_run_are_bound_to_cores_of_their_own() {
    let own = CpuList::of_this_thread().expect("a mask");
    let (lists, said) = told("core");
    assert!(said.contains("bind core: "), "{said}");
    assert!(lists.iter().all(|list| own.includes(list)), "{lists:?}");
    if has_two_processors() {
        assert!(lists.iter().all(|list| list.is_part_of(&own)), "{lists:?}");
    }
    let (lists, said) = told("numa");
    assert!(said.contains("memory node"), "{said}");
    assert!(lists.iter().all(|list| own.includes(list)), "{lists:?}");
    let (lists, said) = told("none");
    assert!(!said.contains("bind "), "{said}");
    assert!(lists.iter().all(|list| *list == own), "{lists:?}");
}

#[test]
fn the_launchers_own_mask_is_divided_and_never_left() {
    if !has_two_processors() {
        return;
    }
    for bind in ["core", "numa", "share"] {
        let (one, (lists, said)) = on_one_processor(|| told(bind));
        assert_eq!(lists, [one.clone(), one.clone()]);
        assert!(said.contains(&format!("only {one} may be used")), "{said}");
    }
}

/// Two ranks as torchrun starts them, where they may run in the end; `bind` is what they are told.
fn joined(bind: &str, job: &str) -> Vec<CpuList> {
    let job = format!("{job}-{}", std::process::id());
    let all = torchrun(FAULTY.as_ref(), &["loop"], 2, &job, &[("MUSTER_PIN", bind)]);
    let lists: Vec<CpuList> = all.iter().map(settled).collect();
    for rank in all {
        rank.signal(Signal::KILL);
        let _ended = rank.wait();
    }
    lists
}

/// Where a rank may run once it makes calls: its threads are more than the first one then.
fn settled(rank: &Running) -> CpuList {
    let tasks = format!("/proc/{}/task", rank.pid());
    let mut list = None;
    until("the rank has joined", || {
        let threads = std::fs::read_dir(&tasks).map_or(0, Iterator::count);
        list = allowed_to(rank.pid());
        threads > 1
            && std::fs::read_to_string(format!("/proc/{}/maps", rank.pid()))
                .is_ok_and(|maps| maps.contains("muster-arena"))
    });
    list.expect("it runs")
}

#[test]
fn ranks_of_other_launchers_bind_themselves_unless_those_have() {
    if !has_two_processors() {
        return;
    }
    let before = Leftovers::now();
    let own = CpuList::of_this_thread().expect("a mask");
    let lists = joined("core", "bound-free");
    assert!(lists.iter().all(|list| list.is_part_of(&own)), "{lists:?}");
    let (one, lists) = on_one_processor(|| joined("core", "bound-by-launcher"));
    assert_eq!(lists, [one.clone(), one]);
    before.assert_nothing_new();
}

#[test]
fn ranks_of_verify_are_bound_too() {
    if !has_two_processors() {
        return;
    }
    let own = CpuList::of_this_thread().expect("a mask");
    let mut running = start(binary(), &["verify", "tp2", "--bind", "core"], &[]);
    for rank in 0..2 {
        let pid = running.await_rank(rank);
        until("the rank is bound", || {
            allowed_to(pid).is_some_and(|list| list.is_part_of(&own))
        });
    }
    running.wait().expect_code(0);
}
