//! Which ranks form which group.

use muster_comm::layout::{FrameworkLayout, GroupKind, Groups, Layout as Sizes, Matrix, Preset};
use muster_comm::types::Rank;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Groups of ranks, as Megatron-LM, vLLM or verl lays them out.
#[pyclass(frozen, module = "muster._muster")]
pub(crate) struct Layout {
    inner: FrameworkLayout,
}

fn refused(error: &dyn std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("illegal layout: {error}"))
}

impl Layout {
    fn named(&self, kind: &str) -> PyResult<Groups> {
        self.inner.groups(kind).ok_or_else(|| {
            let known = self.kinds().join(", ");
            PyValueError::new_err(format!("unknown kind of group {kind:?}; known: {known}"))
        })
    }
}

fn numbers(ranks: impl IntoIterator<Item = Rank>) -> Vec<u32> {
    ranks.into_iter().map(|rank| rank.0).collect()
}

#[pymethods]
impl Layout {
    #[getter]
    fn world_size(&self) -> u32 {
        self.inner.world_size()
    }

    /// The sizes by name.
    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dims = self.inner.dims();
        let sizes = PyDict::new(py);
        for (name, size) in [
            ("world", dims.world),
            ("tp", dims.tp),
            ("cp", dims.cp),
            ("pp", dims.pp),
            ("dp", dims.dp),
            ("ep", dims.ep),
            ("etp", dims.etp),
            ("edp", dims.edp),
        ] {
            sizes.set_item(name, size)?;
        }
        Ok(sizes)
    }

    #[getter]
    fn remark(&self) -> String {
        self.inner.to_string()
    }

    /// The names of its kinds of groups.
    #[getter]
    fn kinds(&self) -> Vec<&'static str> {
        let all = self.inner.named_groups().into_iter();
        all.map(|kind| kind.name).collect()
    }

    /// Every group of a kind.
    fn groups(&self, kind: &str) -> PyResult<Vec<Vec<u32>>> {
        let groups = self.named(kind)?.to_vecs();
        Ok(groups.into_iter().map(numbers).collect())
    }

    /// The group of a kind that holds a rank.
    fn group_of(&self, kind: &str, rank: u32) -> PyResult<Option<Vec<u32>>> {
        let groups = self.named(kind)?;
        let holding = groups.holding(Rank(rank));
        Ok(holding.map(|(_, members)| numbers(members.iter())))
    }

    fn __repr__(&self) -> String {
        format!("<muster layout {}>", self.remark())
    }
}

/// A layout of these sizes.
#[pyfunction]
#[pyo3(signature = (world, tp, cp, pp, ep, etp, dp, order))]
pub(crate) fn layout(
    world: i64,
    tp: i64,
    cp: i64,
    pp: i64,
    ep: i64,
    etp: Option<i64>,
    dp: Option<i64>,
    order: Option<String>,
) -> PyResult<Layout> {
    let mut builder = Sizes::builder().world(world).tp(tp).cp(cp).pp(pp).ep(ep);
    if let Some(etp) = etp {
        builder = builder.etp(etp);
    }
    if let Some(dp) = dp {
        builder = builder.dp(dp);
    }
    if let Some(order) = order {
        builder = builder.order(order);
    }
    let inner = builder.build().map_err(|error| refused(&error))?.into();
    Ok(Layout { inner })
}

/// The layout that a matrix stands for.
#[pyfunction]
pub(crate) fn matrix(name: &str) -> PyResult<Layout> {
    let matrix: Matrix = name
        .parse()
        .map_err(|error: muster_comm::layout::MatrixError| {
            PyValueError::new_err(error.to_string())
        })?;
    let inner = matrix.layout().map_err(|error| refused(&error))?;
    Ok(Layout { inner })
}

/// The phases of a preset, with their layouts.
#[pyfunction]
pub(crate) fn preset(name: &str) -> PyResult<Vec<(&'static str, Layout)>> {
    let preset = Preset::find(name).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let phases = preset.phases().map_err(|error| refused(&error))?;
    Ok(phases
        .into_iter()
        .map(|phase| {
            (
                phase.name,
                Layout {
                    inner: phase.layout,
                },
            )
        })
        .collect())
}

/// The kinds of groups.
pub(crate) fn kinds() -> Vec<&'static str> {
    GroupKind::ALL.map(GroupKind::name).to_vec()
}

/// The names of the presets.
pub(crate) fn presets() -> Vec<&'static str> {
    Preset::all().iter().map(|preset| preset.name).collect()
}
