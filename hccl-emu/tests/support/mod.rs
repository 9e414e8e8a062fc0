//! What the tests of the emulator as a library share: the four names of it, a header in C made from
//! the facts, the system's compiler, and processes that are bounded in time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use muster_comm::sync::{Clock, Deadline};
use serde_json::Value;
use tempfile::TempDir;

/// After this a client is taken to hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
/// The names under which a client finds the emulator.
const NAMES: [&str; 4] = [
    "libhccl.so",
    "libhcomm.so",
    "libascendcl.so",
    "libacl_rt.so",
];

/// Which generation of headers and libraries a client is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// CANN 8.1: two libraries.
    Old,
    /// The newest headers: four libraries.
    New,
}

impl Generation {
    fn header_set(self) -> &'static str {
        match self {
            Self::Old => "8.1.RC1",
            Self::New => "head",
        }
    }

    fn cann(self) -> &'static str {
        match self {
            Self::Old => "8.1.RC1",
            Self::New => "9.2.0",
        }
    }

    fn libraries(self) -> &'static [&'static str] {
        match self {
            Self::Old => &["-lhccl", "-lascendcl"],
            Self::New => &["-lhccl", "-lhcomm", "-lacl_rt", "-lascendcl"],
        }
    }
}

/// A folder with the four libraries, headers and clients.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
}

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shared library that cargo built for these tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let places = [deps.to_owned(), deps.parent().unwrap().to_owned()];
    let made = |path: &PathBuf| {
        fs::metadata(path)
            .and_then(|data| data.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let found = places
        .into_iter()
        .map(|folder| folder.join("libmuster_emu.so"))
        .filter(|path| path.exists())
        .max_by_key(made);
    found.expect("cargo builds the shared library beside the tests")
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lib64 = folder.path().join("lib64");
        fs::create_dir(&lib64).unwrap();
        for name in NAMES {
            symlink(library(), lib64.join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a client of `tests/c` with `compiler`, bound at start (`-z now`).
    pub(crate) fn compile(&self, compiler: &str, source: &str, generation: Generation) -> PathBuf {
        self.compile_with(compiler, source, generation, &[])
    }

    /// The same with further arguments.
    pub(crate) fn compile_with(
        &self,
        compiler: &str,
        source: &str,
        generation: Generation,
        more: &[&str],
    ) -> PathBuf {
        let include = self.path(&format!("include-{generation:?}"));
        fs::create_dir_all(&include).unwrap();
        fs::write(include.join("emulated_api.h"), header(generation)).unwrap();
        let sources = manifest().join("tests/c");
        let program = self.path(&format!("{source}-{generation:?}"));
        let mut command = Command::new(compiler);
        command
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
            .args(["-Wno-unused-function", "-Wl,-z,now"])
            .arg("-I")
            .arg(&include)
            .arg(sources.join(format!("{source}.c")))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(self.path("lib64"))
            .args(generation.libraries())
            .args(["-lpthread", "-lm"])
            .args(more);
        if generation == Generation::New {
            command.arg("-DNEW_CANN");
        }
        let output = command.output().expect("the system has a C compiler");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        program
    }

    /// A client, ready to be started.
    pub(crate) fn client(
        &self,
        program: &Path,
        generation: Generation,
        arguments: &[&str],
    ) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", self.path("lib64"))
            .env("MUSTER_EMU_CANN", generation.cann())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("HCCL_HOST_SOCKET_PORT_RANGE", "auto");
        command
    }

    /// Starts `ranks` clients with `RANK RANKS ROOT-INFO-FILE` as arguments, and gives what each
    /// said and how it ended.
    pub(crate) fn ranks(
        &self,
        program: &Path,
        generation: Generation,
        ranks: usize,
        variables: &[(&str, &str)],
        more: &[&str],
    ) -> Vec<Ended> {
        let info = self.path(&format!(
            "root-info-{}",
            program.file_name().unwrap().to_string_lossy()
        ));
        let _ = fs::remove_file(&info);
        let children: Vec<Child> = (0..ranks)
            .map(|rank| {
                let (rank, ranks) = (rank.to_string(), ranks.to_string());
                let mut arguments = vec![rank.as_str(), &ranks, info.to_str().unwrap()];
                arguments.extend(more);
                self.client(program, generation, &arguments)
                    .envs(variables.iter().copied())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let ended = bounded(children);
        let _ = fs::remove_file(&info);
        ended
    }
}

impl Bench {
    /// Runs one client to its end.
    pub(crate) fn run(
        &self,
        program: &Path,
        generation: Generation,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Ended {
        let child = self
            .client(program, generation, arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        bounded(vec![child]).remove(0)
    }
}

/// How a client ended, and what it said.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// The same in words, with the signal that ended it where one did.
    pub(crate) how: String,
    pub(crate) said: String,
}

impl Ended {
    pub(crate) fn assert_passed(&self) {
        assert_eq!(self.code, Some(0), "{}: {}", self.how, self.said);
        assert!(self.said.contains("passed"), "{}", self.said);
    }
}

/// Waits for clients; those that do not end in time are killed, and fail the test.
pub(crate) fn bounded(children: Vec<Child>) -> Vec<Ended> {
    use std::io::Read as _;
    let deadline = Deadline::after(PATIENCE);
    let mut all = Vec::new();
    for mut child in children {
        let mut readers = Vec::new();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let pipes: [Option<Box<dyn std::io::Read + Send>>; 2] = [
            out.map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>),
            err.map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>),
        ];
        for mut pipe in pipes.into_iter().flatten() {
            readers.push(std::thread::spawn(move || {
                let mut text = String::new();
                let _ = pipe.read_to_string(&mut text);
                text
            }));
        }
        all.push((child, readers));
    }
    let mut late = false;
    let mut ended = Vec::new();
    for (child, readers) in &mut all {
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if deadline.passed() {
                late = true;
                child.kill().unwrap();
            }
            Clock::pause(Duration::from_millis(5));
        };
        let said: String = readers
            .drain(..)
            .map(|reader| reader.join().unwrap())
            .collect();
        ended.push(Ended {
            code: status.code(),
            how: status.to_string(),
            said,
        });
    }
    assert!(!late, "clients hang: {ended:#?}");
    ended
}

/// The API as a C header, made from the facts: constants, types, layouts that the compiler checks,
/// and the prototypes of all functions whose types are known.
fn header(generation: Generation) -> String {
    let facts = manifest().join("../hccl-sys/tests/data/abi_facts.json");
    let facts: Value = serde_json::from_str(&fs::read_to_string(facts).unwrap()).unwrap();
    let set = generation.header_set();
    let abi = facts["abi"][set].as_object().unwrap();
    let mut text = String::from(
        "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n",
    );
    for (section, values) in abi {
        constants(&mut text, section, values);
    }
    text.push_str(
        "typedef int32_t aclError;\n\
         typedef void *HcclComm, *aclrtStream, *aclrtEvent, *aclrtContext, *aclrtDrvMemHandle;\n\
         typedef void *HcclCommSymWindow;\n\
         typedef int32_t aclrtMemMallocPolicy, aclrtMemcpyKind, aclrtMemAttr;\n\
         typedef int32_t aclrtStreamStatus, aclrtEventStatus, aclrtEventRecordedStatus;\n\
         typedef int32_t aclrtEventWaitStatus, aclrtFloatOverflowMode, aclrtCallbackBlockType;\n\
         typedef void (*aclrtCallback)(void *);\n\
         typedef union { int32_t value; } HcclConfigValue;\n",
    );
    structs(&mut text, &abi["hccl_structs"]);
    config_init(&mut text, &abi["HcclCommConfigInit_image_over_0xAA"]);
    for (name, function) in facts["functions"].as_object().unwrap() {
        if !function["declared_in"][set].is_null() {
            prototype(&mut text, name, function);
        }
    }
    text
}

fn constants(text: &mut String, section: &str, values: &Value) {
    let Some(values) = values.as_object() else {
        return;
    };
    let is_plain = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    for (name, value) in values {
        if is_plain(name)
            && name.bytes().any(|byte| byte.is_ascii_uppercase())
            && !name.contains("HcclCommConfig")
            && let Some(number) = value.as_i64()
        {
            writeln!(text, "#define {name} {number}").unwrap();
        }
    }
    let is_enum =
        section.starts_with("Hccl") && !section.contains("Config_") && !section.contains("Init");
    if is_enum && section != "HcclCommConfig" {
        writeln!(text, "typedef int32_t {section};").unwrap();
    }
}

/// The structs by their offsets and sizes.
fn structs(text: &mut String, values: &Value) {
    let values = values.as_object().unwrap();
    let mut fields: BTreeMap<&str, Vec<(u64, &str, u64)>> = BTreeMap::new();
    for (key, offset) in values {
        if let Some((name, field)) = key.split_once('.')
            && !key.starts_with("sizeof")
            && let Some(size) = values[&format!("sizeof({key})")].as_u64()
        {
            let list = fields.entry(name).or_default();
            list.push((offset.as_u64().unwrap(), field, size));
        }
    }
    for (name, mut list) in fields {
        if name == "HcclConfigValue" {
            continue;
        }
        list.sort_unstable();
        writeln!(text, "typedef struct {{").unwrap();
        for (_, field, size) in &list {
            let c_type = match (*field, *size) {
                ("buf", _) => "void *",
                ("dataType" | "sendRecvType" | "hcclExecTimeOut", _) => "int32_t ",
                (_, 1) => "uint8_t ",
                (_, 4) => "uint32_t ",
                (_, 8) => "uint64_t ",
                _ => "",
            };
            if c_type.is_empty() {
                writeln!(text, "    char {field}[{size}];").unwrap();
            } else {
                writeln!(text, "    {c_type}{field};").unwrap();
            }
        }
        writeln!(text, "}} {name};").unwrap();
        for (offset, field, _) in &list {
            writeln!(
                text,
                "_Static_assert(offsetof({name}, {field}) == {offset}, \"{field}\");"
            )
            .unwrap();
        }
        let size = &values[&format!("sizeof({name})")];
        writeln!(
            text,
            "_Static_assert(sizeof({name}) == {size}, \"{name}\");"
        )
        .unwrap();
    }
}

/// The inline function of the vendor's header, by the bytes that it leaves.
fn config_init(text: &mut String, image: &Value) {
    text.push_str("static inline void HcclCommConfigInit(HcclCommConfig *config) {\n");
    for part in image.as_array().unwrap() {
        let hex = part["hex"].as_str().unwrap();
        let bytes: Vec<String> = hex
            .as_bytes()
            .chunks(2)
            .map(|pair| format!("\\x{}", std::str::from_utf8(pair).unwrap()))
            .collect();
        writeln!(
            text,
            "    memcpy((char *)config + {}, \"{}\", {});",
            part["offset"],
            bytes.join("\" \""),
            bytes.len()
        )
        .unwrap();
    }
    text.push_str("}\n");
}

/// A prototype, unless it has a type that this header does not have.
fn prototype(text: &mut String, name: &str, function: &Value) {
    let returns = function["returns"].as_str().unwrap();
    let arguments: Vec<&str> = function["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|argument| argument.as_str().unwrap())
        .collect();
    let is_known = |declaration: &str| {
        declaration
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .find(|word| !word.is_empty() && *word != "const")
            .is_some_and(|word| {
                text.contains(&format!(" {word};"))
                    || KNOWN.contains(&word)
                    || text.contains(&format!("{word},"))
                    || text.contains(&format!("*{word}"))
                    || text.contains(&format!("}} {word};"))
            })
    };
    if !is_known(returns) || !arguments.iter().all(|argument| is_known(argument)) {
        return;
    }
    let list = if arguments.is_empty() {
        "void".to_owned()
    } else {
        arguments.join(", ")
    };
    writeln!(text, "{returns} {name}({list});").unwrap();
}

const KNOWN: [&str; 14] = [
    "bool", "char", "double", "float", "int", "int32_t", "int64_t", "size_t", "uint16_t",
    "uint32_t", "uint64_t", "uint8_t", "unsigned", "void",
];
