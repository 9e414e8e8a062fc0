//! Which of the contracts that are set speaks for this process.
//!
//! Launchers nest, so several contracts may be set in full. They may agree; or one may have started
//! the other, which must be proved by numbers; everything else is refused.

use super::claim::Claim;
use super::contract::Contract;
use super::devices::VisibleDevices;
use super::endpoint;
use super::error::LaunchError;
use super::exchange;
use super::identity::{Detected, Identity, Source};
use super::{node, process};
use crate::config::{self, Environment};
use crate::types::Rank;

/// The answer where nobody forced a contract.
///
/// # Errors
/// As [`super::detect`].
pub(super) fn detect(environment: &Environment) -> Result<Detected, LaunchError> {
    let own = process::read(environment, Contract::Muster)?;
    if own.present {
        return explicit(environment, own);
    }
    let mut claims = Vec::new();
    for contract in Contract::PER_PROCESS {
        claims.push(process::read(environment, contract)?);
    }
    let mut notes: Vec<String> = claims
        .iter()
        .flat_map(|claim| claim.notes.clone())
        .collect();
    claims.retain(|claim| claim.present);
    let Some(position) = claims.iter().position(|claim| claim.pair().is_some()) else {
        return match claims.into_iter().next() {
            Some(claim) => Err(claim.refusal.clone().unwrap_or_else(|| claim.incomplete())),
            None => node::detect(environment, notes),
        };
    };
    let chosen = claims.remove(position);
    let (agreeing, nested) = compare(&chosen, &claims)?;
    notes.extend(nested);
    identity(environment, chosen, &agreeing, notes)
}

/// The answer where a contract was forced: nobody else is believed, but who differs is told.
///
/// # Errors
/// As [`super::detect`], for the forced contract only.
pub(super) fn forced(
    environment: &Environment,
    contract: Contract,
) -> Result<Detected, LaunchError> {
    let mut claim = process::read_forced(environment, contract)?;
    if let Some(refusal) = claim.refusal {
        return Err(refusal);
    }
    let set: Vec<&str> = environment.names().collect();
    claim.missing.retain(|name| !set.contains(name));
    explicit(environment, claim)
}

/// The answer where the user chose the contract: others that differ make remarks, no refusals.
fn explicit(environment: &Environment, chosen: Claim) -> Result<Detected, LaunchError> {
    if chosen.pair().is_none() {
        return Err(chosen.incomplete());
    }
    let mut notes = chosen.notes.clone();
    let mut agreeing = Vec::new();
    for contract in Contract::PER_PROCESS {
        if contract == chosen.contract {
            continue;
        }
        match process::read(environment, contract) {
            Ok(claim) if !claim.present => {}
            Ok(claim) if conflict(&chosen, &claim) => notes.push(format!(
                "{} is believed where {}",
                chosen.contract,
                claim.statement()
            )),
            Ok(claim) if claim.pair().is_some() => agreeing.push(claim),
            Ok(_) => {}
            Err(error) => notes.push(error.to_string()),
        }
    }
    let agreeing: Vec<&Claim> = agreeing.iter().collect();
    identity(environment, chosen, &agreeing, notes)
}

/// Sorts the other claims: those that agree, and remarks on those that started us.
fn compare<'a>(
    chosen: &Claim,
    others: &'a [Claim],
) -> Result<(Vec<&'a Claim>, Vec<String>), LaunchError> {
    let started_us: Vec<&Claim> = others.iter().filter(|other| nests(chosen, other)).collect();
    let mut agreeing = Vec::new();
    let mut notes = Vec::new();
    for other in others {
        if !conflict(chosen, other) {
            agreeing.extend(other.pair().is_some().then_some(other));
            continue;
        }
        let excused = started_us
            .iter()
            .any(|outer| outer.contract == other.contract || !conflict(outer, other));
        if !excused {
            return Err(LaunchError::Disagree {
                first: chosen.statement(),
                second: other.statement(),
            });
        }
        notes.push(format!("started inside: {}", other.statement()));
    }
    Ok((agreeing, notes))
}

/// Whether two claims cannot both be true of one process.
fn conflict(one: &Claim, other: &Claim) -> bool {
    let differ = |a: Option<u32>, b: Option<u32>| a.zip(b).is_some_and(|(a, b)| a != b);
    // A device id stands for the local rank there, and need not count from 0.
    let by_device = [one, other]
        .iter()
        .any(|claim| claim.contract == Contract::RankTable);
    differ(one.rank, other.rank)
        || differ(one.world_size, other.world_size)
        || (!by_device && differ(one.local_rank, other.local_rank))
        || differ(one.local_world_size, other.local_world_size)
}

/// Whether the numbers prove that `outer` started the launcher that `inner` comes from.
///
/// `outer` then started one process on this node, and `inner` spread its larger world over what
/// `outer` started. An `inner` world that lies whole on one of several nodes is no such thing:
/// that is one world a node, which no check of a single world would ever notice.
fn nests(inner: &Claim, outer: &Claim) -> bool {
    let (Some((_, inner_size)), Some((_, outer_size))) = (inner.pair(), outer.pair()) else {
        return false;
    };
    let one_here = outer_size == 1 || outer.local_world_size == Some(1);
    let further_out = outer.contract.shell() > inner.contract.shell();
    let spread = if inner.contract == Contract::Torchrun {
        inner.nnodes == Some(outer_size)
    } else {
        outer_size == 1 || inner.local_world_size.is_some_and(|here| here < inner_size)
    };
    further_out && one_here && spread && inner_size > outer_size
}

/// A world of one shares its name with nobody, so its process may give it.
fn job_of_one(environment: &Environment, claim: &Claim) -> Option<String> {
    let pid = environment.pid().filter(|_| claim.world_size == Some(1))?;
    Some(endpoint::job_name(claim.contract, &format!("pid-{pid}")))
}

/// Whether a claim says nothing of where the rank lies. A device id alone does not say it.
fn is_shapeless(claim: &Claim) -> bool {
    let place = [claim.local_world_size, claim.node_rank, claim.nnodes];
    let by_device = claim.contract == Contract::RankTable;
    place.iter().all(Option::is_none) && (by_device || claim.local_rank.is_none())
}

/// Puts the answer together: the chosen claim, completed by those that agree with it.
fn identity(
    environment: &Environment,
    chosen: Claim,
    agreeing: &[&Claim],
    mut notes: Vec<String>,
) -> Result<Detected, LaunchError> {
    let Some((rank, world_size)) = chosen.pair() else {
        return Err(chosen.incomplete());
    };
    if let Some(refusal) = chosen.refusal {
        return Err(refusal);
    }
    // Where this rank lies is taken from one claim as a whole: parts of two could be of two worlds.
    let shape = if is_shapeless(&chosen) {
        agreeing.iter().copied().find(|claim| !is_shapeless(claim))
    } else {
        None
    };
    let shape = shape.unwrap_or(&chosen);
    let attempt = chosen
        .attempt
        .or_else(|| agreeing.iter().find_map(|claim| claim.attempt));
    let mut place = chosen.place.clone();
    for other in agreeing {
        place.host = place.host.or_else(|| other.place.host.clone());
        place.taken = place.taken.or(other.place.taken);
    }
    let job_id = chosen
        .job_id
        .clone()
        .or_else(|| agreeing.iter().find_map(|claim| claim.job_id.clone()))
        .or_else(|| job_of_one(environment, &chosen));
    let mut found = Identity {
        rank: Rank(rank),
        world_size,
        local_rank: shape.local_rank,
        local_world_size: shape.local_world_size,
        node_rank: shape.node_rank,
        nnodes: shape.nnodes,
        endpoint: None,
        exchange: None,
        job_id: environment.read(&config::JOB_ID)?.or(job_id),
        attempt: environment.read(&config::ATTEMPT)?.or(attempt).unwrap_or(0),
        devices: None,
        source: Source {
            contract: chosen.contract,
            variables: chosen.variables.clone(),
            agreeing: agreeing.iter().map(|claim| claim.contract).collect(),
        },
        notes: Vec::new(),
    };
    let on_one_host = found.is_on_one_host();
    let (endpoint, remark) = endpoint::choose(
        environment,
        place,
        on_one_host,
        found.job_id.as_deref(),
        found.attempt,
    )?;
    found.endpoint = endpoint;
    if let Some(remark) = remark.filter(|_| world_size > 1) {
        match exchange::find(environment, chosen.contract, rank, world_size)? {
            Ok(exchange) => found.exchange = Some(exchange),
            Err(why) => notes.push(why.map_or(remark, str::to_owned)),
        }
    }
    found.devices = VisibleDevices::detect(environment, &mut notes);
    found.notes = notes;
    Ok(Detected::Identity(found))
}
