//! The contracts that start one process a rank: what each says, in full or in part.
//!
//! A claim is what one contract says and nothing else; comparing claims is the parent's business.

use super::ascend::{mindspore, rank_table};
use super::claim::Claim;
use super::contract::Contract;
use super::endpoint::{Place, job_name};
use super::error::LaunchError;
use super::reader::{Reader, small};
use super::slurm::slurm;
use crate::config::{self, Environment};

/// What `contract` says in this environment.
///
/// # Errors
/// If a variable of the contract is malformed, or two of them contradict each other.
pub(super) fn read(environment: &Environment, contract: Contract) -> Result<Claim, LaunchError> {
    claim(Reader::new(environment, contract))
}

/// What `contract` says where the user chose it: marks of nearer contracts do not silence it.
///
/// # Errors
/// As [`read`].
pub(super) fn read_forced(
    environment: &Environment,
    contract: Contract,
) -> Result<Claim, LaunchError> {
    claim(Reader::forced(environment, contract))
}

fn claim(reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let contract = reader.contract;
    match contract {
        Contract::Env => env(reader),
        Contract::MindSpore => mindspore(reader),
        Contract::Muster => muster(reader),
        Contract::Pals => pals(reader),
        Contract::RankTable => rank_table(reader),
        Contract::Ray => ray(reader),
        Contract::Slurm => slurm(reader),
        Contract::Torchrun => torchrun(reader),
        Contract::Flux => simple(reader, &FLUX),
        Contract::Hydra => hydra(reader),
        Contract::Jsrun => simple(reader, &JSRUN),
        Contract::Mvapich => simple(reader, &MVAPICH),
        Contract::OpenMpi => simple(reader, &OPEN_MPI),
        Contract::Pmix => pmix(reader),
        Contract::AscendJobMindSpore
        | Contract::AscendJobPytorch
        | Contract::AscendJobTensorflow
        | Contract::Dlrover
        | Contract::IndexedJob
        | Contract::LeaderWorkerSet
        | Contract::Mlp
        | Contract::ModelArts
        | Contract::Pai
        | Contract::PodEnv
        | Contract::PytorchJob
        | Contract::TrainJob
        | Contract::VolcanoPytorch
        | Contract::VolcanoSvc => Ok(Claim::new(contract)),
    }
}

/// The variables of a contract that has one for everything.
struct Names {
    rank: &'static str,
    world_size: &'static str,
    local_rank: Option<&'static str>,
    local_world_size: Option<&'static str>,
    nnodes: Option<&'static str>,
    /// Variables that hold the id of the job; all that are set make the name.
    job: &'static [&'static str],
    /// Starters whose process stands for the job where no variable does.
    starters: &'static [&'static str],
}

/// `OMPI_COMM_WORLD_NODE_RANK` is left out on purpose: it counts processes, not nodes.
const OPEN_MPI: Names = Names {
    rank: "OMPI_COMM_WORLD_RANK",
    world_size: "OMPI_COMM_WORLD_SIZE",
    local_rank: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
    local_world_size: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
    nnodes: None,
    job: &["PMIX_NAMESPACE"],
    starters: &["mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"],
};

const MVAPICH: Names = Names {
    rank: "MV2_COMM_WORLD_RANK",
    world_size: "MV2_COMM_WORLD_SIZE",
    local_rank: Some("MV2_COMM_WORLD_LOCAL_RANK"),
    local_world_size: Some("MV2_COMM_WORLD_LOCAL_SIZE"),
    nnodes: None,
    job: &["PMI_JOBID"],
    starters: &["mpispawn", "mpirun_rsh", "hydra_pmi_proxy"],
};

/// MPICH 4 under Hydra sets nothing that two jobs of one host would not set alike; its proxy, one
/// a host and a job, is the parent of all ranks there.
const HYDRA: Names = Names {
    rank: "PMI_RANK",
    world_size: "PMI_SIZE",
    local_rank: Some("MPI_LOCALRANKID"),
    local_world_size: Some("MPI_LOCALNRANKS"),
    nnodes: None,
    job: &["PMI_JOBID"],
    starters: &["hydra_pmi_proxy", "pmi_proxy"],
};

const FLUX: Names = Names {
    rank: "FLUX_TASK_RANK",
    world_size: "FLUX_JOB_SIZE",
    local_rank: Some("FLUX_TASK_LOCAL_ID"),
    local_world_size: None,
    nnodes: Some("FLUX_JOB_NNODES"),
    job: &["FLUX_JOB_ID"],
    starters: &[],
};

const JSRUN: Names = Names {
    rank: "JSM_NAMESPACE_RANK",
    world_size: "JSM_NAMESPACE_SIZE",
    local_rank: Some("JSM_NAMESPACE_LOCAL_RANK"),
    local_world_size: None,
    nnodes: None,
    job: &["LSB_JOBID", "PMIX_NAMESPACE"],
    starters: &[],
};

fn simple(mut reader: Reader<'_>, names: &Names) -> Result<Claim, LaunchError> {
    let mut claim = Claim::new(reader.contract);
    claim.rank = reader.number(names.rank)?;
    claim.world_size = reader.world_size(names.world_size)?;
    claim.require(claim.rank, names.rank);
    claim.require(claim.world_size, names.world_size);
    claim.present = claim.rank.is_some() || claim.world_size.is_some();
    if !claim.present {
        return Ok(claim);
    }
    let optional = |reader: &mut Reader<'_>, name: Option<&str>| match name {
        Some(name) => reader.number(name),
        None => Ok(None),
    };
    claim.local_rank = optional(&mut reader, names.local_rank)?;
    claim.local_world_size = optional(&mut reader, names.local_world_size)?;
    claim.nnodes = optional(&mut reader, names.nnodes)?;
    let mut ids = Vec::new();
    for name in names.job {
        ids.extend(reader.text(name)?);
    }
    claim.job_id = if ids.is_empty() {
        job_of_starter(&reader, names.starters, &claim)
    } else {
        Some(job_name(reader.contract, &ids.join(".")))
    };
    claim.finish(&reader)
}

/// A job id made of the nearest process above that starts ranks, where all ranks are its children.
fn job_of_starter(reader: &Reader<'_>, starters: &[&str], claim: &Claim) -> Option<String> {
    let all_here = claim.local_world_size.is_some() && claim.local_world_size == claim.world_size;
    let ancestors = reader.environment().ancestors();
    let starter = ancestors.iter().find(|above| {
        // The distribution appends the flavour, as in `mpirun.openmpi`.
        let name = above.name.split('.').next().unwrap_or_default();
        starters.contains(&name)
    })?;
    let id = format!("{}@{}", starter.pid, starter.started_ticks);
    all_here.then(|| job_name(reader.contract, &id))
}

fn hydra(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    // Cray PALS sets the PMI names too, and reads them itself below.
    if reader.has("PALS_RANKID") && !reader.forced {
        return Ok(Claim::new(reader.contract));
    }
    // `mpiexec -pmi-port` tells rank and world size only to who asks there. Ranks that took that for no launcher would each
    // make a world of its own. MVAPICH sets the port too, and names of its own.
    let is_by_port = reader.has("PMI_ID") && reader.has("PMI_PORT");
    if is_by_port && !reader.has("PMI_RANK") && !reader.has("MV2_COMM_WORLD_RANK") {
        let mut claim = Claim::new(reader.contract);
        claim.present = true;
        reader.text("PMI_ID")?;
        reader.text("PMI_PORT")?;
        claim.missing = vec!["PMI_RANK", "PMI_SIZE"];
        claim.why = "; muster does not speak PMI over a port: start the ranks without -pmi-port";
        return claim.finish(&reader);
    }
    simple(reader, &HYDRA)
}

fn pmix(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let mut claim = Claim::new(reader.contract);
    claim.rank = reader.number("PMIX_RANK")?;
    claim.present = claim.rank.is_some();
    claim.require(claim.rank, "PMIX_RANK");
    claim.missing.push("the world size");
    claim.why = "; PMIx tells it only to its own clients: set MUSTER_RANK and MUSTER_WORLD_SIZE";
    if let Some(namespace) = reader.text("PMIX_NAMESPACE")? {
        claim.job_id = Some(job_name(reader.contract, namespace));
    }
    claim.finish(&reader)
}

fn pals(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let mut claim = Claim::new(reader.contract);
    claim.present = reader.has("PALS_RANKID");
    if !claim.present {
        claim.missing = vec!["PALS_RANKID", "PMI_SIZE"];
        return Ok(claim);
    }
    claim.rank = reader.number_of(&["PALS_RANKID", "PMI_RANK"])?;
    claim.world_size = reader.world_size("PMI_SIZE")?;
    claim.require(claim.world_size, "PMI_SIZE");
    claim.local_rank = reader.number_of(&["PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"])?;
    claim.local_world_size = reader.number_of(&["PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"])?;
    let id = reader.first_text(&["PALS_APID", "PMI_JOBID"])?;
    claim.job_id = id.map(|id| job_name(reader.contract, id));
    claim.finish(&reader)
}

fn muster(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let environment = reader.environment();
    let mut claim = Claim::new(reader.contract);
    claim.rank = environment.read(&config::RANK)?;
    claim.world_size = environment.read(&config::WORLD_SIZE)?;
    claim.local_rank = environment.read(&config::LOCAL_RANK)?;
    claim.local_world_size = environment.read(&config::LOCAL_WORLD_SIZE)?;
    claim.node_rank = environment.read(&config::NODE_RANK)?;
    claim.nnodes = environment.read(&config::NNODES)?;
    claim.require(claim.rank, "MUSTER_RANK");
    claim.require(claim.world_size, "MUSTER_WORLD_SIZE");
    claim.present = claim.rank.is_some() || claim.world_size.is_some();
    for variable in [
        config::RANK.variable(),
        config::WORLD_SIZE.variable(),
        config::LOCAL_RANK.variable(),
        config::LOCAL_WORLD_SIZE.variable(),
        config::NODE_RANK.variable(),
        config::NNODES.variable(),
    ] {
        reader.text(variable.name)?;
    }
    claim.finish(&reader)
}

/// `MASTER_ADDR` and `MASTER_PORT`: where torch meets. The host serves us too, the port does not.
pub(super) fn master(reader: &mut Reader<'_>) -> Result<(Place, Option<String>), LaunchError> {
    let host = reader.host("MASTER_ADDR")?;
    let taken = reader.port("MASTER_PORT")?;
    let id = match (&host, taken) {
        (Some(host), Some(port)) => Some(format!("{host}:{port}")),
        _ => None,
    };
    let host = host.map(|host| (host, "MASTER_ADDR"));
    Ok((Place { host, taken }, id))
}

fn torchrun(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let mut claim = Claim::new(reader.contract);
    claim.present = is_torchrun(&reader);
    if !claim.present {
        claim.missing = vec!["TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK"];
        return Ok(claim);
    }
    claim.rank = reader.number("RANK")?;
    claim.world_size = reader.world_size("WORLD_SIZE")?;
    claim.local_rank = reader.number("LOCAL_RANK")?;
    claim.require(claim.rank, "RANK");
    claim.require(claim.world_size, "WORLD_SIZE");
    claim.require(claim.local_rank, "LOCAL_RANK");
    claim.local_world_size = reader.number("LOCAL_WORLD_SIZE")?;
    claim.node_rank = reader.number("GROUP_RANK")?;
    claim.nnodes = reader.number("GROUP_WORLD_SIZE")?;
    claim.attempt = reader.number("TORCHELASTIC_RESTART_COUNT")?;
    let run = reader.text("TORCHELASTIC_RUN_ID")?;
    reader.text("TORCHELASTIC_USE_AGENT_STORE")?;
    let (place, master) = master(&mut reader)?;
    claim.place = place;
    // The run id alone is "none" for every job that was started without one.
    claim.job_id = master.map(|master| {
        let run = run.unwrap_or("none");
        job_name(reader.contract, &format!("{run}@{master}"))
    });
    claim.finish(&reader)
}

pub(super) fn is_torchrun(reader: &Reader<'_>) -> bool {
    reader.has_prefix("TORCHELASTIC_")
        || reader.has("GROUP_WORLD_SIZE")
        || reader.has("ROLE_WORLD_SIZE")
}

/// An actor has no `LOCAL_RANK`, and `RANK` counts processes all the same.
fn ray(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let mut claim = Claim::new(reader.contract);
    claim.present = reader.forced || is_ray(&reader);
    if !claim.present {
        claim.missing = vec!["WG_BACKEND", "RANK", "WORLD_SIZE"];
        return Ok(claim);
    }
    reader.text("WG_BACKEND")?;
    claim.rank = reader.number("RANK")?;
    claim.world_size = reader.world_size("WORLD_SIZE")?;
    claim.require(claim.rank, "RANK");
    claim.require(claim.world_size, "WORLD_SIZE");
    claim.local_rank = reader.number("RAY_LOCAL_RANK")?;
    claim.local_world_size = reader.number("RAY_LOCAL_WORLD_SIZE")?;
    // MASTER_ADDR and MASTER_PORT are set on all ranks but the first, which chooses them itself, and RAY_JOB_ID is that of no
    // job in processes that Ray started in advance.
    let group = reader.text("WG_PREFIX")?;
    claim.job_id = group.map(|group| job_name(reader.contract, group));
    claim.finish(&reader)
}

/// Whether this is a rank in a Ray actor: verl says so, or another framework has counted the actors of a node. `RAY_JOB_ID` alone
/// is in every actor; it is taken for that where nothing speaks of pods, whose `RANK` the actors of a pod would share.
pub(super) fn is_ray(reader: &Reader<'_>) -> bool {
    let backend = reader.environment().text("WG_BACKEND");
    let is_verl = backend.is_ok_and(|backend| backend == Some("ray"));
    let is_pod = reader.has("KUBERNETES_SERVICE_HOST")
        || reader.has_prefix("PET_")
        || reader.has_prefix("VC_");
    let is_ranked = reader.has("RANK") && reader.has("WORLD_SIZE") && !reader.has("LOCAL_RANK");
    let is_counted = reader.has("RAY_LOCAL_RANK") || reader.has("RAY_JOB_ID") && !is_pod;
    (is_verl || is_ranked && is_counted) && !is_torchrun(reader)
}

/// Whether `LOCAL_RANK` lists several ranks: then it speaks of a pod, not of a process.
pub(super) fn is_list(text: &str) -> bool {
    text.contains(',')
}

fn env(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let mut claim = Claim::new(reader.contract);
    let local = reader.environment().text("LOCAL_RANK")?;
    let scalar = local.is_some_and(|text| !is_list(text));
    let speaks = scalar && (reader.has("RANK") || reader.has("WORLD_SIZE"));
    // Without LOCAL_RANK the two may count pods: that is a contract a node, not one a process.
    claim.present = speaks && (reader.forced || !is_torchrun(&reader) && !is_ray(&reader));
    if !claim.present {
        claim.missing = vec!["RANK", "WORLD_SIZE", "LOCAL_RANK"];
        return Ok(claim);
    }
    claim.rank = reader.number("RANK")?;
    claim.world_size = reader.world_size("WORLD_SIZE")?;
    claim.local_rank = reader.number("LOCAL_RANK")?;
    claim.require(claim.rank, "RANK");
    claim.require(claim.world_size, "WORLD_SIZE");
    claim.local_world_size = reader.number("LOCAL_WORLD_SIZE")?;
    check_pods(&mut reader, claim.world_size)?;
    let (place, master) = master(&mut reader)?;
    claim.place = place;
    claim.job_id = master.map(|master| job_name(reader.contract, &master));
    claim.finish(&reader)
}

/// In a Kubeflow pod `WORLD_SIZE` must count processes before `RANK` can be one.
fn check_pods(reader: &mut Reader<'_>, world_size: Option<u32>) -> Result<(), LaunchError> {
    let mut known =
        |name: &str| -> Result<Option<u32>, LaunchError> { Ok(reader.text(name)?.and_then(small)) };
    let (nodes, procs) = (known("PET_NNODES")?, known("PET_NPROC_PER_NODE")?);
    if let (Some(nodes), Some(procs), Some(world_size)) = (nodes, procs, world_size)
        && u64::from(nodes) * u64::from(procs) != u64::from(world_size)
    {
        return Err(reader.contradiction(format!(
            "world size {world_size} is not {nodes} nodes of {procs} processes; it seems to count pods"
        )));
    }
    Ok(())
}
