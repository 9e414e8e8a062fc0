//! Memory nodes and cores as `/sys` tells them, and the places of ranks on them.

use std::collections::BTreeMap;

use super::{Bind, CpuList};

const NODES: &str = "/sys/devices/system/node";
const PROCESSORS: &str = "/sys/devices/system/cpu";
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// What a file holds; `None` where it cannot be read.
type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A memory node, as far as its processors may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its processors that may be used: one at least.
    pub cpus: CpuList,
    /// Whether it has memory of its own. If not, the kernel takes that of a node near to it.
    pub has_memory: bool,
}

/// Where a rank is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the memory node: of its first processor, if its share reaches over several.
    pub node: u32,
    /// The processors that it keeps to.
    pub cpus: CpuList,
}

/// The processors that may be used, by memory node and core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<Node>,
    /// Cores in the order of the nodes: the place of the node in `nodes`, and the hardware threads.
    cores: Vec<(usize, CpuList)>,
}

impl Topology {
    /// Of this host, with the processors that the calling thread may use.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Self::of(&read, &CpuList::of_this_thread().unwrap_or_default())
    }

    /// Of the host whose files are read, with the processors that a process there may use: those of its mask that are online and in
    /// its cpuset.
    #[must_use]
    pub fn seen(read: Read<'_>) -> Self {
        let list = |path: &str| CpuList::parse(&read(path)?);
        let online = list(&format!("{PROCESSORS}/online"));
        let allowed = [mask(read), cpuset(read)].into_iter().flatten();
        let usable = allowed
            .chain(online)
            .reduce(|one, other| one.common(&other));
        Self::of(read, &usable.unwrap_or_default())
    }

    fn of(read: Read<'_>, usable: &CpuList) -> Self {
        let list = |path: &str| CpuList::parse(&read(path)?);
        let online = list(&format!("{NODES}/online")).unwrap_or_default();
        let with_memory = list(&format!("{NODES}/has_memory"));
        let node = |number: u32| Node {
            number,
            cpus: list(&format!("{NODES}/node{number}/cpulist"))
                .unwrap_or_default()
                .common(usable),
            has_memory: with_memory.as_ref().is_none_or(|all| all.has(number)),
        };
        let mut nodes: Vec<Node> = online.numbers().map(node).collect();
        nodes.retain(|node| !node.cpus.is_empty());
        let told: usize = nodes.iter().map(|node| node.cpus.count()).sum();
        if told != usable.count() {
            // A kernel without memory nodes, or a /sys that hides them.
            nodes = vec![Node {
                number: 0,
                cpus: usable.clone(),
                has_memory: true,
            }];
        }
        let mut cores = Vec::new();
        for (place, node) in nodes.iter().enumerate() {
            // By their first thread, so in the order of the numbers.
            let mut of_node: BTreeMap<u32, CpuList> = BTreeMap::new();
            for cpu in node.cpus.numbers() {
                let threads = list(&format!(
                    "{PROCESSORS}/cpu{cpu}/topology/thread_siblings_list"
                ))
                .filter(|threads| threads.has(cpu))
                .unwrap_or_else(|| CpuList::from_iter([cpu]))
                .common(&node.cpus);
                let first = threads.numbers().next().unwrap_or(cpu);
                of_node.entry(first).or_insert(threads);
            }
            cores.extend(of_node.into_values().map(|threads| (place, threads)));
        }
        Self { nodes, cores }
    }

    /// The memory nodes that have processors for us, by number.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many cores there are.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// All processors.
    #[must_use]
    pub fn cpus(&self) -> CpuList {
        self.nodes
            .iter()
            .flat_map(|node| node.cpus.numbers())
            .collect()
    }

    /// The places of all ranks of a host, by local rank; none for [`Bind::None`], and where there are no processors.
    ///
    /// Every rank has an even share of the cores in their order. [`Bind::Core`] takes the core in the middle of it and
    /// [`Bind::Numa`] the node of that core, so nodes get ranks by their numbers of cores, ranks beside each other are near each other,
    /// and a few ranks are spread over all nodes.
    #[must_use]
    pub fn places(&self, bind: Bind, ranks: usize) -> Vec<Place> {
        if self.cores.is_empty() {
            return Vec::new();
        }
        let middle = |rank: usize| (2 * rank + 1) * self.cores.len() / (2 * ranks);
        let place = |rank: usize| -> Option<Place> {
            let (node, core) = &self.cores[middle(rank)];
            let node = &self.nodes[*node];
            let cpus = match bind {
                Bind::None => return None,
                Bind::Share => return Some(self.share(rank, ranks)),
                Bind::Core => core.clone(),
                Bind::Numa => node.cpus.clone(),
            };
            Some(Place {
                node: node.number,
                cpus,
            })
        };
        (0..ranks).filter_map(place).collect()
    }

    /// An even share of the hardware threads, core by core, or one that several ranks take turns on.
    fn share(&self, rank: usize, ranks: usize) -> Place {
        let threads: Vec<(usize, u32)> = self
            .cores
            .iter()
            .flat_map(|(node, threads)| threads.numbers().map(|cpu| (*node, cpu)))
            .collect();
        let all = threads.len();
        let mine = if ranks >= all {
            &threads[rank % all..][..1]
        } else {
            &threads[rank * all / ranks..(rank + 1) * all / ranks]
        };
        Place {
            node: self.nodes[mine[0].0].number,
            cpus: mine.iter().map(|(_, cpu)| *cpu).collect(),
        }
    }
}

/// The mask of the process that reads.
fn mask(read: Read<'_>) -> Option<CpuList> {
    let status = read("/proc/self/status")?;
    let mut lines = status.lines();
    CpuList::parse(lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// What the nearest control group that says so leaves, of version 2 or 1; `None` where none limits the processors.
fn cpuset(read: Read<'_>) -> Option<CpuList> {
    let groups = read("/proc/self/cgroup")?;
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (mount, file) = if controllers.is_empty() {
            (CONTROL_GROUPS.to_owned(), "cpuset.cpus.effective")
        } else if controllers.split(',').any(|one| one == "cpuset") {
            (format!("{CONTROL_GROUPS}/cpuset"), "cpuset.effective_cpus")
        } else {
            return None;
        };
        // In a container the path may be that of the host, of which only the mount exists.
        let above = std::iter::successors(Some(path.trim_end_matches('/')), |path| {
            path.rsplit_once('/').map(|(above, _)| above)
        });
        let mut found = above.filter_map(|path| read(&format!("{mount}{path}/{file}")));
        found
            .find_map(|text| CpuList::parse(&text))
            .filter(|cpus| !cpus.is_empty())
    })
}

#[cfg(test)]
mod tests;
