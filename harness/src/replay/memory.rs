//! Memory of erased element types, and the typed calls that need it.

use half::{bf16, f16};
use muster_comm::buffer::{Element, ReadView, WriteView};
use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::types::DType;

use super::program::Message;

/// Words that hold so many elements.
pub(super) fn words(dtype: DType, count: usize) -> usize {
    (count * dtype.size()).div_ceil(size_of::<u64>())
}

/// Bytes in memory that suits every element type.
pub(super) fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0; bytes.len().div_ceil(size_of::<u64>())];
    bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

/// Does something with the Rust type of an element type.
macro_rules! typed {
    ($dtype:expr, $do:ident ( $($with:expr),* )) => {
        match $dtype {
            DType::Bf16 => $do::<bf16>($($with),*),
            DType::F16 => $do::<f16>($($with),*),
            DType::F32 => $do::<f32>($($with),*),
            DType::F64 => $do::<f64>($($with),*),
            DType::I8 => $do::<i8>($($with),*),
            DType::I16 => $do::<i16>($($with),*),
            DType::I32 => $do::<i32>($($with),*),
            DType::I64 => $do::<i64>($($with),*),
            DType::U8 => $do::<u8>($($with),*),
            DType::U16 => $do::<u16>($($with),*),
            DType::U32 => $do::<u32>($($with),*),
            DType::U64 => $do::<u64>($($with),*),
        }
    };
}

fn elements<T: Element>(words: &[u64], count: usize) -> &[T] {
    &bytemuck::cast_slice(words)[..count]
}

fn elements_mut<T: Element>(words: &mut [u64], count: usize) -> &mut [T] {
    &mut bytemuck::cast_slice_mut(words)[..count]
}

pub(super) fn read(dtype: DType, words: &[u64], count: usize) -> ReadView<'_> {
    fn of<T: Element>(words: &[u64], count: usize) -> ReadView<'_> {
        ReadView::new(elements::<T>(words, count))
    }
    typed!(dtype, of(words, count))
}

pub(super) fn write(dtype: DType, words: &mut [u64], count: usize) -> WriteView<'_> {
    fn of<T: Element>(words: &mut [u64], count: usize) -> WriteView<'_> {
        WriteView::new(elements_mut::<T>(words, count))
    }
    typed!(dtype, of(words, count))
}

pub(super) fn send(comm: &Communicator, message: &Message, words: &[u64]) -> Result<(), CommError> {
    fn of<T: Element>(
        comm: &Communicator,
        message: &Message,
        words: &[u64],
    ) -> Result<(), CommError> {
        comm.send(elements::<T>(words, message.count), message.peer)
    }
    typed!(message.dtype, of(comm, message, words))
}

pub(super) fn recv(
    comm: &Communicator,
    message: &Message,
    words: &mut [u64],
) -> Result<(), CommError> {
    fn of<T: Element>(
        comm: &Communicator,
        message: &Message,
        words: &mut [u64],
    ) -> Result<(), CommError> {
        comm.recv(elements_mut::<T>(words, message.count), message.peer)
    }
    typed!(message.dtype, of(comm, message, words))
}
