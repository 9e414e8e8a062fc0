//! Which element types and reductions a product takes, by the vendor's tables.
//!
//! Pure: product, operator, type and reduction in; yes or no, with what is allowed, out.

use hccl_sys::types::{HcclDataType, HcclReduceOp};
use muster_comm::types::{DType, ReduceOp};

use super::operator::Operator;
use crate::options::Product;

/// An element type as the host backend moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    /// What the host backend takes it for.
    pub(crate) dtype: DType,
    /// Elements of `dtype` in one element: 16 bytes of a 128-bit integer.
    pub(crate) parts: usize,
    /// Whether `dtype` has the same meaning, so that it can be reduced.
    pub(crate) is_same: bool,
}

impl Element {
    /// Of a barrier, which moves none.
    pub(crate) const BYTE: Self = Self::bytes_only(1);

    const fn same(dtype: DType) -> Self {
        Self {
            dtype,
            parts: 1,
            is_same: true,
        }
    }

    const fn bytes_only(parts: usize) -> Self {
        Self {
            dtype: DType::U8,
            parts,
            is_same: false,
        }
    }

    /// The element type that a number of the vendor stands for.
    pub(crate) fn of(data_type: HcclDataType) -> Option<Self> {
        Some(match data_type {
            HcclDataType::HCCL_DATA_TYPE_INT8 => Self::same(DType::I8),
            HcclDataType::HCCL_DATA_TYPE_INT16 => Self::same(DType::I16),
            HcclDataType::HCCL_DATA_TYPE_INT32 => Self::same(DType::I32),
            HcclDataType::HCCL_DATA_TYPE_FP16 => Self::same(DType::F16),
            HcclDataType::HCCL_DATA_TYPE_FP32 => Self::same(DType::F32),
            HcclDataType::HCCL_DATA_TYPE_INT64 => Self::same(DType::I64),
            HcclDataType::HCCL_DATA_TYPE_UINT64 => Self::same(DType::U64),
            HcclDataType::HCCL_DATA_TYPE_UINT8 => Self::same(DType::U8),
            HcclDataType::HCCL_DATA_TYPE_UINT16 => Self::same(DType::U16),
            HcclDataType::HCCL_DATA_TYPE_UINT32 => Self::same(DType::U32),
            HcclDataType::HCCL_DATA_TYPE_FP64 => Self::same(DType::F64),
            HcclDataType::HCCL_DATA_TYPE_BFP16 => Self::same(DType::Bf16),
            HcclDataType::HCCL_DATA_TYPE_INT128 => Self::bytes_only(16),
            HcclDataType::HCCL_DATA_TYPE_HIF8
            | HcclDataType::HCCL_DATA_TYPE_FP8E4M3
            | HcclDataType::HCCL_DATA_TYPE_FP8E5M2
            | HcclDataType::HCCL_DATA_TYPE_FP8E8M0 => Self::bytes_only(1),
            _ => return None,
        })
    }

    /// Bytes of one element.
    pub(crate) fn bytes(self) -> usize {
        self.dtype.size() * self.parts
    }
}

/// The reduction that a number of the vendor stands for.
pub(crate) fn reduction(op: HcclReduceOp) -> Option<ReduceOp> {
    Some(match op {
        HcclReduceOp::HCCL_REDUCE_SUM => ReduceOp::Sum,
        HcclReduceOp::HCCL_REDUCE_PROD => ReduceOp::Prod,
        HcclReduceOp::HCCL_REDUCE_MAX => ReduceOp::Max,
        HcclReduceOp::HCCL_REDUCE_MIN => ReduceOp::Min,
        _ => return None,
    })
}

/// Whether the product has the operator at all.
pub(crate) fn has_operator(product: Product, operator: Operator) -> bool {
    use Operator as O;
    match product {
        Product::Atlas310P => !matches!(
            operator,
            O::AllToAllVC
                | O::BatchSendRecv
                | O::Broadcast
                | O::Recv
                | O::Reduce
                | O::Scatter
                | O::Send
        ),
        Product::Atlas910 => !matches!(operator, O::AllGatherV | O::AllToAllVC | O::ReduceScatterV),
        Product::A2 | Product::A3 | Product::Atlas950 => true,
    }
}

/// Element types that the operator moves without looking at them.
pub(crate) fn movable(product: Product, dtype: HcclDataType) -> bool {
    match Element::of(dtype) {
        // The 8-bit floats work on the 950 only; 128-bit integers are moved by every product.
        Some(Element {
            is_same: false,
            parts: 1,
            ..
        }) => product == Product::Atlas950,
        Some(_) => true,
        None => false,
    }
}

/// The element types of a reduction.
pub(crate) fn reducible(product: Product, operator: Operator, op: ReduceOp) -> &'static [DType] {
    use DType as T;
    const A2: &[DType] = &[T::I8, T::I16, T::I32, T::I64, T::F16, T::F32, T::Bf16];
    const A2_PROD: &[DType] = &[T::I8, T::I32, T::I64, T::F16, T::F32];
    const A2_V: &[DType] = &[T::I8, T::I16, T::I32, T::F16, T::F32, T::Bf16];
    const ATLAS_910: &[DType] = A2_PROD;
    const ATLAS_310P: &[DType] = &[T::I8, T::I32, T::F16, T::F32];
    const ATLAS_310P_SUM: &[DType] = &[T::I8, T::I16, T::I32, T::F16, T::F32];
    const ATLAS_310P_V: &[DType] = &[T::I16, T::F16, T::F32];
    const ATLAS_950: &[DType] = &[
        T::I8,
        T::I16,
        T::I32,
        T::I64,
        T::U64,
        T::F16,
        T::F32,
        T::F64,
        T::Bf16,
    ];
    const ATLAS_950_PROD: &[DType] = &[T::I8, T::I32, T::I64, T::U64, T::F16, T::F32, T::F64];
    let is_v = operator == Operator::ReduceScatterV;
    match (product, op) {
        (Product::A2, ReduceOp::Prod) if is_v => &[],
        (Product::A3, ReduceOp::Prod) if is_v => &[],
        (Product::A2, _) if is_v => A2_V,
        (Product::A2 | Product::A3, ReduceOp::Prod) => A2_PROD,
        (Product::A2 | Product::A3, _) => A2,
        (Product::Atlas910, _) if is_v => &[],
        (Product::Atlas910, _) => ATLAS_910,
        (Product::Atlas310P, ReduceOp::Sum) if is_v => ATLAS_310P_V,
        (Product::Atlas310P, _) if is_v => &[],
        (Product::Atlas310P, ReduceOp::Sum) => ATLAS_310P_SUM,
        (Product::Atlas310P, _) => ATLAS_310P,
        (Product::Atlas950, ReduceOp::Prod) => ATLAS_950_PROD,
        (Product::Atlas950, _) => ATLAS_950,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_sizes_of_the_vendors_table() {
        for (number, bytes) in [1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16]
            .into_iter()
            .enumerate()
        {
            let number = i32::try_from(number).unwrap();
            let element = Element::of(HcclDataType(number)).unwrap();
            assert_eq!(element.bytes(), bytes, "{number}");
        }
        for number in 14..=17 {
            assert_eq!(Element::of(HcclDataType(number)).unwrap().bytes(), 1);
        }
        for number in [-1, 13, 18, 255] {
            assert_eq!(Element::of(HcclDataType(number)), None);
        }
    }

    #[test]
    fn products_refuse_what_their_hardware_does_not_take() {
        let takes =
            |product, operator, op, dtype| reducible(product, operator, op).contains(&dtype);
        let all = Operator::AllReduce;
        assert!(takes(Product::A2, all, ReduceOp::Sum, DType::Bf16));
        assert!(!takes(Product::A2, all, ReduceOp::Prod, DType::Bf16));
        assert!(!takes(Product::A2, all, ReduceOp::Prod, DType::I16));
        let v = Operator::ReduceScatterV;
        assert!(!takes(Product::A2, v, ReduceOp::Sum, DType::I64));
        assert!(takes(Product::A3, v, ReduceOp::Sum, DType::I64));
        assert!(!takes(Product::A3, v, ReduceOp::Prod, DType::F32));
        assert!(takes(Product::Atlas950, v, ReduceOp::Prod, DType::F32));
        assert!(!takes(Product::Atlas310P, all, ReduceOp::Max, DType::I16));
        for product in [
            Product::A2,
            Product::A3,
            Product::Atlas910,
            Product::Atlas950,
        ] {
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
                for dtype in [DType::U8, DType::U16, DType::U32] {
                    assert!(!takes(product, all, op, dtype));
                }
            }
        }
        assert!(!has_operator(Product::Atlas310P, Operator::Send));
        assert!(!has_operator(Product::Atlas910, Operator::AllGatherV));
        assert!(!movable(Product::A2, HcclDataType::HCCL_DATA_TYPE_HIF8));
        assert!(movable(
            Product::Atlas950,
            HcclDataType::HCCL_DATA_TYPE_HIF8
        ));
        assert!(movable(Product::A2, HcclDataType::HCCL_DATA_TYPE_INT128));
        assert!(!movable(Product::A2, HcclDataType(13)));
    }
}
