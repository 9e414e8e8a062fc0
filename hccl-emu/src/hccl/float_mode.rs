//! The processor's treatment of subnormal numbers, while an operator computes.
//!
//! A program that was built for speed above all may switch subnormals off as it starts, and its
//! threads inherit that, those of the emulator too. A device does not know such a switch.

/// The processor's usual floating-point mode, until dropped; then the thread's own again.
#[derive(Debug)]
pub(crate) struct UsualMode {
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        expect(dead_code, reason = "there is nothing to restore")
    )]
    before: u64,
}

impl UsualMode {
    pub(crate) fn set() -> Self {
        Self {
            before: exchange(USUAL),
        }
    }
}

impl Drop for UsualMode {
    fn drop(&mut self) {
        exchange(self.before);
    }
}

/// As a process starts: all exceptions masked, to nearest, subnormals kept.
#[cfg(target_arch = "x86_64")]
const USUAL: u64 = 0x1F80;
/// As a process starts: to nearest, subnormals kept.
#[cfg(not(target_arch = "x86_64"))]
const USUAL: u64 = 0;

/// Sets the control word; gives the one before.
#[cfg(target_arch = "x86_64")]
fn exchange(word: u64) -> u64 {
    let word = word as u32;
    let mut before = 0_u32;
    // SAFETY: stores the control word into a live local, and nothing else.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut before, options(nostack)) };
    // SAFETY: a word that was the processor's, or its default: no reserved bit is set.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack)) };
    u64::from(before)
}

/// Sets the control word; gives the one before.
#[cfg(target_arch = "aarch64")]
fn exchange(word: u64) -> u64 {
    let before: u64;
    // SAFETY: reads a control register into a local.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) before, options(nomem, nostack)) };
    // SAFETY: a word that was the processor's, or its default.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) word, options(nomem, nostack)) };
    before
}

/// There is no such switch that we know of.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn exchange(word: u64) -> u64 {
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnormals_are_kept_while_the_mode_is_set_and_the_threads_own_mode_comes_back() {
        #[cfg(target_arch = "x86_64")]
        let flushing = 0x1F80 | 0x8040;
        #[cfg(not(target_arch = "x86_64"))]
        let flushing = 1 << 24;
        let usual = exchange(flushing);
        {
            let _mode = UsualMode::set();
            let least = std::hint::black_box(f32::from_bits(2));
            assert_eq!((least + least).to_bits(), 4);
        }
        assert_eq!(exchange(usual), flushing);
    }
}
