//! Groups as one JSON document: the contract of `docs/layout.md`.

use std::io::{self, Write};

use muster_comm::layout::GroupBackend;
use muster_comm::types::Rank;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::{Call, Entry, GroupsArgs, SCHEMA_VERSION, View};

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    tool: &'static str,
    #[serde(flatten)]
    body: Body<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    One(ViewJson<'a>),
    Preset {
        preset: &'a str,
        phases: Vec<ViewJson<'a>>,
    },
}

#[derive(Serialize)]
struct ViewJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    world_size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    groups: EntriesJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_groups: Option<Vec<CallJson<'a>>>,
}

#[derive(Serialize)]
struct CallJson<'a> {
    name: &'a str,
    backend: &'static str,
    ranks: &'a [Rank],
}

struct EntriesJson<'a> {
    entries: &'a [Entry],
    rank: Option<u32>,
}

impl Serialize for EntriesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.entries.len()))?;
        for entry in self.entries {
            match self.rank {
                None => map.serialize_entry(entry.name, &entry.lists)?,
                Some(rank) => {
                    let held = entry.lists.holding(Rank(rank));
                    let lists: Vec<_> = held.into_iter().map(|(_, members)| members).collect();
                    map.serialize_entry(entry.name, &lists)?;
                }
            }
        }
        map.end()
    }
}

pub(super) fn write(args: &GroupsArgs, views: &[View], out: &mut dyn Write) -> io::Result<()> {
    let mut bodies: Vec<_> = views.iter().map(|view| view_json(args, view)).collect();
    let body = match args.preset {
        Some(preset) => Body::Preset {
            preset: preset.name,
            phases: bodies,
        },
        None => Body::One(bodies.swap_remove(0)),
    };
    let document = Document {
        schema_version: SCHEMA_VERSION,
        tool: crate::TOOL,
        body,
    };
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

fn view_json<'a>(args: &GroupsArgs, view: &'a View) -> ViewJson<'a> {
    let call = |call: &'a Call| CallJson {
        name: &call.name,
        backend: backend_name(call.backend),
        ranks: &call.ranks,
    };
    ViewJson {
        name: view.phase,
        world_size: view.layout.world_size(),
        rank: args.rank,
        groups: EntriesJson {
            entries: &view.entries,
            rank: args.rank,
        },
        new_groups: view
            .calls
            .as_ref()
            .map(|calls| calls.iter().map(call).collect()),
    }
}

pub(super) fn backend_name(backend: GroupBackend) -> &'static str {
    match backend {
        GroupBackend::Default => "default",
        GroupBackend::Gloo => "gloo",
    }
}
