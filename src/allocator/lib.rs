//! mimalloc as the allocator of the gateway.
//!
//! The crate `mimalloc` asks for each block with its alignment. That path looks for a block that happens to be aligned,
//! and takes a larger one than necessary if there is none, although mimalloc aligns blocks of 16 bytes and more to 16
//! bytes, and smaller ones to eight. This allocator names an alignment only beyond that.

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};
use std::alloc::{GlobalAlloc, Layout};

/// mimalloc's `MI_MAX_ALIGN_SIZE` in bytes: the alignment of every block that is not smaller.
const MAX_ALIGN: usize = 16;

/// The alignment of every block in bytes.
const MIN_ALIGN: usize = 8;

/// The allocator.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

/// Returns whether every block of `size` bytes has the alignment.
const fn is_always_aligned(size: usize, align: usize) -> bool {
    align <= MIN_ALIGN || (align <= MAX_ALIGN && size >= MAX_ALIGN)
}

// SAFETY: each method passes its arguments on to the function of mimalloc with the same contract. Those without an
// alignment are called only where mimalloc promises the alignment for the size, the new size if there are two. Every
// block of mimalloc may be freed and reallocated by any of its functions. None of them unwinds.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: see above.
        let block =
            unsafe { if is_always_aligned(size, align) { mi_malloc(size) } else { mi_malloc_aligned(size, align) } };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: see above.
        let block =
            unsafe { if is_always_aligned(size, align) { mi_zalloc(size) } else { mi_zalloc_aligned(size, align) } };
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block is one of mimalloc.
        unsafe { mi_free(block.cast()) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let align = layout.align();
        // SAFETY: see above.
        let block = unsafe {
            if is_always_aligned(new_size, align) {
                mi_realloc(block.cast(), new_size)
            } else {
                mi_realloc_aligned(block.cast(), new_size, align)
            }
        };
        block.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` for each alignment up to a page, and sizes around each power of two up to 128 KiB.
    fn each_layout(mut visit: impl FnMut(Layout)) {
        for align in (0..=12).map(|exponent| 1 << exponent) {
            for size in (0..=17).flat_map(|exponent| [(1_usize << exponent) - 1, 1 << exponent, (1 << exponent) + 1]) {
                if let Ok(layout) = Layout::from_size_align(size.max(1), align) {
                    visit(layout);
                }
            }
        }
    }

    #[test]
    fn every_block_is_aligned_and_zeroed_where_zeroes_are_asked_for() {
        each_layout(|layout| {
            // SAFETY: the layouts have a size, and each block is used within its size and freed once.
            unsafe {
                for _ in 0..40 {
                    let block = Allocator.alloc(layout);
                    assert!(!block.is_null() && block.addr() % layout.align() == 0, "{layout:?}");
                    block.write_bytes(0xA5, layout.size());
                    let zeroed = Allocator.alloc_zeroed(layout);
                    assert!(!zeroed.is_null() && zeroed.addr() % layout.align() == 0, "{layout:?}");
                    assert!(std::slice::from_raw_parts(zeroed, layout.size()).iter().all(|&byte| byte == 0));
                    Allocator.dealloc(block, layout);
                    Allocator.dealloc(zeroed, layout);
                }
            }
        });
    }

    #[test]
    fn a_block_keeps_its_bytes_and_its_alignment_when_its_size_changes() {
        each_layout(|layout| {
            for new_size in [1, 7, 15, 16, 17, 100, 4_000, 70_000] {
                // SAFETY: as above; the block that is freed has the new size.
                unsafe {
                    let block = Allocator.alloc(layout);
                    block.write_bytes(0x5A, layout.size());
                    let moved = Allocator.realloc(block, layout, new_size);
                    assert!(!moved.is_null() && moved.addr() % layout.align() == 0, "{layout:?} to {new_size}");
                    let kept = std::slice::from_raw_parts(moved, new_size.min(layout.size()));
                    assert!(kept.iter().all(|&byte| byte == 0x5A), "{layout:?} to {new_size}");
                    Allocator.dealloc(moved, Layout::from_size_align_unchecked(new_size, layout.align()));
                }
            }
        });
    }
}
