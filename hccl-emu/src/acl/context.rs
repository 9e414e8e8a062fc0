//! Contexts.

use std::ffi::c_void;
use std::sync::Arc;

use super::abi::{Out, exports, null};
use crate::runtime::device::{self, Context};
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::{handles, state};

exports! {
    /// Makes a context of a device and makes it current in the calling thread.
    fn aclrtCreateContext(context: Out<*mut c_void>, device: i32) {
        let place = context.check("context")?;
        let device = state().device(device)?;
        device.check_alive()?;
        device.memory.open()?;
        let made = Context::create(device);
        place.set("context", handles::pointer(made.handle))?;
        device::set_current(Some(made));
        Ok(())
    }

    /// Ends a context that [`aclrtCreateContext`] made, and its streams.
    fn aclrtDestroyContext(context: *mut c_void) {
        if context.is_null() {
            return Err(null("context"));
        }
        let found = Context::find(context)?;
        if found.is_primary {
            let text = "the default context of a device ends with aclrtResetDevice";
            return Err(RuntimeError::new(AclError::RT_PARAM_INVALID, text));
        }
        found.end(false);
        Ok(())
    }

    /// Makes a context current in the calling thread.
    fn aclrtSetCurrentContext(context: *mut c_void) {
        if context.is_null() {
            return Err(null("context"));
        }
        let found = Context::find(context)?;
        device::set_current(Some(found));
        Ok(())
    }

    /// The calling thread's context.
    fn aclrtGetCurrentContext(context: Out<*mut c_void>) {
        let place = context.check("context")?;
        place.set("context", handles::pointer(device::current()?.handle))
    }

    /// The stream that calls without one use.
    fn aclrtCtxGetCurrentDefaultStream(stream: Out<*mut c_void>) {
        let place = stream.check("stream")?;
        let context = device::current()?;
        place.set("stream", handles::pointer(context.default_stream().handle))
    }

    /// Whether a device has a default context; `flags` is reserved and null.
    fn aclrtGetPrimaryCtxState(device: i32, flags: Out<u32>, active: Out<i32>) {
        if !flags.absent() {
            return Err(RuntimeError::new(AclError::INVALID_PARAM, "flags is not null"));
        }
        let context = state().device(device)?.primary_context();
        active.set("active", i32::from(context.is_some_and(|context: Arc<Context>| !context.has_ended())))
    }

    /// Kept for the current context, and without effect: sums are always in the same order here.
    fn aclrtCtxSetSysParamOpt(option: i32, value: i64) {
        device::current()?.system_options.set(option, value)
    }

    /// What was set for the current context; an error if nothing was.
    fn aclrtCtxGetSysParamOpt(option: i32, value: Out<i64>) {
        let place = value.check("value")?;
        let kept = device::current()?.system_options.get(option)?;
        let missing = || {
            let text = format!("option {option} was never set in this context");
            RuntimeError::new(AclError::RT_SYSPARAMOPT_NOT_SET, text)
        };
        place.set("value", kept.ok_or_else(missing)?)
    }

    /// Kept for the process, and without effect.
    fn aclrtSetSysParamOpt(option: i32, value: i64) {
        state().process.system_options.set(option, value)
    }

    /// What was set for the process; 0 if nothing was.
    fn aclrtGetSysParamOpt(option: i32, value: Out<i64>) {
        let place = value.check("value")?;
        place.set("value", state().process.system_options.get(option)?.unwrap_or(0))
    }
}
