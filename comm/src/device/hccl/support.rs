//! What each product takes: element types, reductions and collectives.
//!
//! Asked before the vendor is called, so that a refusal names what is allowed. A product that no
//! table knows is refused nothing here. Source: the vendor's tables of supported types for each
//! operator (CANN 8.1 to 9.1).

use hccl_sys::types::{HcclDataType, HcclReduceOp};

use super::soc::{Product, Soc};
use crate::error::ErrorKind;
use crate::types::{Collective, DType, Pattern, ReduceOp};

/// Types that some reduction of a product takes.
const fn reducible(product: Product) -> &'static [DType] {
    match product {
        Product::A2 | Product::A3 => &[
            DType::I8,
            DType::I16,
            DType::I32,
            DType::I64,
            DType::F16,
            DType::Bf16,
            DType::F32,
        ],
        Product::Ascend910 => &[DType::I8, DType::I32, DType::I64, DType::F16, DType::F32],
        Product::Ascend310P => &[DType::I8, DType::I16, DType::I32, DType::F16, DType::F32],
        Product::Ascend950 => &[
            DType::I8,
            DType::I16,
            DType::I32,
            DType::I64,
            DType::U64,
            DType::F16,
            DType::Bf16,
            DType::F32,
            DType::F64,
        ],
        Product::Unknown => &DType::ALL,
    }
}

/// Whether a product reduces a type in this way. An average is a sum here.
fn reduces(product: Product, dtype: DType, op: ReduceOp) -> bool {
    let op_fits = match (product, op) {
        (_, ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor) => false,
        (Product::A2 | Product::A3 | Product::Ascend950, ReduceOp::Prod) => {
            !matches!(dtype, DType::I16 | DType::Bf16)
        }
        (Product::Ascend310P, ReduceOp::Max | ReduceOp::Min | ReduceOp::Prod) => {
            dtype != DType::I16
        }
        (
            Product::A2
            | Product::A3
            | Product::Ascend310P
            | Product::Ascend910
            | Product::Ascend950
            | Product::Unknown,
            _,
        ) => true,
    };
    op_fits && reducible(product).contains(&dtype)
}

/// Whether the vendor's own `HcclReduceScatterV` takes it; if not, it is composed.
pub(super) fn has_reduce_scatter_v(product: Product, dtype: DType, op: ReduceOp) -> bool {
    let op = if op == ReduceOp::Avg {
        ReduceOp::Sum
    } else {
        op
    };
    match product {
        Product::A2 => op != ReduceOp::Prod && dtype != DType::I64,
        Product::A3 => op != ReduceOp::Prod,
        Product::Ascend310P => {
            op == ReduceOp::Sum && matches!(dtype, DType::I16 | DType::F16 | DType::F32)
        }
        Product::Ascend910 => false,
        Product::Ascend950 | Product::Unknown => true,
    }
}

/// Refuses what a product cannot do, with what it can.
///
/// # Errors
/// `Unsupported`.
pub(crate) fn check(
    soc: &Soc,
    collective: Collective,
    dtype: Option<DType>,
    op: Option<ReduceOp>,
) -> Result<(), ErrorKind> {
    let product = soc.product;
    if product == Product::Ascend310P && collective.is_of_messages() {
        return Err(ErrorKind::Unsupported {
            what: format!("{collective} on {soc}"),
            why: "HCCL has no messages between two ranks there; use a collective".to_owned(),
        });
    }
    if collective.is_coalesced() || collective.pattern().is_some_and(Pattern::is_prefix) {
        return Err(lacking(soc, collective));
    }
    let (Some(dtype), Some(op)) = (dtype, op) else {
        return Ok(());
    };
    if reduces(product, dtype, op) {
        return Ok(());
    }
    if op.is_bitwise() {
        return Err(ErrorKind::Unsupported {
            what: format!("{collective} by {op} on {soc}"),
            why: "HCCL has no reductions of bits; make it on the host".to_owned(),
        });
    }
    let types: Vec<&str> = reducible(product)
        .iter()
        .filter(|dtype| reduces(product, **dtype, op))
        .map(|dtype| dtype.name())
        .collect();
    Err(ErrorKind::Unsupported {
        what: format!("{collective} of {dtype} by {op} on {soc}"),
        why: format!("{op} takes {} there", types.join(", ")),
    })
}

/// The refusal of a call that HCCL does not have and that is not composed of others.
pub(crate) fn lacking(soc: &Soc, collective: Collective) -> ErrorKind {
    ErrorKind::Unsupported {
        what: format!("{collective} on {soc}"),
        why: "HCCL has no such call; make it on the host".to_owned(),
    }
}

/// The vendor's number of a type.
pub(super) const fn data_type(dtype: DType) -> HcclDataType {
    match dtype {
        DType::Bf16 => HcclDataType::HCCL_DATA_TYPE_BFP16,
        DType::F16 => HcclDataType::HCCL_DATA_TYPE_FP16,
        DType::F32 => HcclDataType::HCCL_DATA_TYPE_FP32,
        DType::F64 => HcclDataType::HCCL_DATA_TYPE_FP64,
        DType::I8 => HcclDataType::HCCL_DATA_TYPE_INT8,
        DType::I16 => HcclDataType::HCCL_DATA_TYPE_INT16,
        DType::I32 => HcclDataType::HCCL_DATA_TYPE_INT32,
        DType::I64 => HcclDataType::HCCL_DATA_TYPE_INT64,
        DType::U8 => HcclDataType::HCCL_DATA_TYPE_UINT8,
        DType::U16 => HcclDataType::HCCL_DATA_TYPE_UINT16,
        DType::U32 => HcclDataType::HCCL_DATA_TYPE_UINT32,
        DType::U64 => HcclDataType::HCCL_DATA_TYPE_UINT64,
    }
}

/// The vendor's number of a reduction; an average begins as a sum.
pub(super) const fn reduce_op(op: ReduceOp) -> HcclReduceOp {
    match op {
        ReduceOp::Avg | ReduceOp::Sum => HcclReduceOp::HCCL_REDUCE_SUM,
        ReduceOp::Max => HcclReduceOp::HCCL_REDUCE_MAX,
        ReduceOp::Min => HcclReduceOp::HCCL_REDUCE_MIN,
        ReduceOp::Prod => HcclReduceOp::HCCL_REDUCE_PROD,
        // No product takes them: see `reduces`.
        ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => HcclReduceOp::HCCL_REDUCE_RESERVED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(soc: &str, collective: Collective, dtype: DType, op: ReduceOp) -> Option<String> {
        check(&Soc::named(soc), collective, Some(dtype), Some(op))
            .err()
            .map(|kind| kind.to_string())
    }

    #[test]
    fn a_refusal_names_product_call_and_what_is_allowed() {
        assert_eq!(
            refusal(
                "Ascend910B2",
                Collective::AllReduce,
                DType::U8,
                ReduceOp::Sum
            )
            .unwrap(),
            "all_reduce of u8 by sum on Ascend910B2 (Atlas A2) is not supported: sum takes i8, \
             i16, i32, i64, f16, bf16, f32 there"
        );
        let prod = refusal(
            "Ascend910B2",
            Collective::Reduce,
            DType::Bf16,
            ReduceOp::Prod,
        );
        assert!(
            prod.unwrap()
                .ends_with("prod takes i8, i32, i64, f16, f32 there")
        );
    }

    #[test]
    fn the_table_of_products_holds() {
        let all = Collective::AllReduce;
        let ok = |soc, dtype, op| refusal(soc, all, dtype, op).is_none();
        assert!(ok("Ascend910B2", DType::Bf16, ReduceOp::Avg));
        assert!(!ok("Ascend910A", DType::Bf16, ReduceOp::Sum));
        assert!(!ok("Ascend910A", DType::I16, ReduceOp::Sum));
        assert!(ok("Ascend310P3", DType::I16, ReduceOp::Sum));
        assert!(!ok("Ascend310P3", DType::I16, ReduceOp::Max));
        assert!(!ok("Ascend310P3", DType::I64, ReduceOp::Sum));
        assert!(ok("Ascend950PR_9589", DType::F64, ReduceOp::Prod));
        assert!(!ok("Ascend910_9391", DType::U64, ReduceOp::Sum));
        assert!(
            ok("Ascend999", DType::U64, ReduceOp::Prod),
            "an unknown chip decides itself"
        );
        assert!(!has_reduce_scatter_v(
            Product::A2,
            DType::I64,
            ReduceOp::Sum
        ));
        assert!(has_reduce_scatter_v(Product::A2, DType::F32, ReduceOp::Avg));
    }

    #[test]
    fn what_hccl_does_not_have_is_refused_on_every_product() {
        for soc in ["Ascend910B2", "Ascend310P3", "Ascend999"] {
            for collective in [
                Collective::Scan,
                Collective::ExclusiveScan,
                Collective::AllReduceCoalesced,
            ] {
                let refused = refusal(soc, collective, DType::F32, ReduceOp::Sum).unwrap();
                assert!(refused.contains("HCCL has no such call"), "{refused}");
            }
        }
    }

    #[test]
    fn messages_are_refused_where_the_product_has_none() {
        let soc = Soc::named("Ascend310P3");
        assert!(check(&soc, Collective::Send, Some(DType::F32), None).is_err());
        assert!(check(&soc, Collective::AllGather, Some(DType::U8), None).is_ok());
    }
}
