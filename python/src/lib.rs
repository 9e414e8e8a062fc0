//! `muster._muster`: the runtime of `muster-comm` for Python. The public classes are in Python, in the folder `muster`.

mod block;
mod buffer;
mod channels;
mod comm;
mod dlpack;
mod error;
mod interrupt;
mod layout;
mod request;
mod site;
mod stack;
mod table;
mod threads;
mod work;
mod world;

use pyo3::prelude::*;

#[pymodule]
fn _muster(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<block::Block>()?;
    module.add_class::<comm::Communicator>()?;
    module.add_class::<layout::Layout>()?;
    module.add_class::<work::Work>()?;
    module.add_class::<world::World>()?;
    module.add_function(wrap_pyfunction!(world::forked, module)?)?;
    module.add_function(wrap_pyfunction!(world::join, module)?)?;
    module.add_function(wrap_pyfunction!(world::join_environment, module)?)?;
    module.add_function(wrap_pyfunction!(threads::threads, module)?)?;
    module.add_function(wrap_pyfunction!(layout::layout, module)?)?;
    module.add_function(wrap_pyfunction!(layout::matrix, module)?)?;
    module.add_function(wrap_pyfunction!(layout::preset, module)?)?;
    module.add_function(wrap_pyfunction!(table::table, module)?)?;
    module.add_function(wrap_pyfunction!(table::group, module)?)?;
    module.add("GROUP_KINDS", layout::kinds())?;
    module.add("PRESETS", layout::presets())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
