//! Answer of a store that may be in this process or elsewhere: a value that is at hand, or one that has to be waited
//! for. A store in this process allocates nothing and never suspends its caller.

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Either, Ready, ready},
};

/// Answer of a store. `.await` returns a ready value at once.
#[must_use = "a store may do nothing until its answer is awaited"]
pub enum StoreAnswer<'a, T> {
    /// The store has answered.
    Ready(T),
    /// The store answers later. The future borrows nothing but the store.
    Pending(BoxFuture<'a, T>),
}

impl<'a, T: 'a> StoreAnswer<'a, T> {
    /// Applies `change` to the value, now or as soon as it arrives.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'a) -> StoreAnswer<'a, U> {
        match self {
            Self::Ready(value) => StoreAnswer::Ready(change(value)),
            Self::Pending(answer) => StoreAnswer::Pending(answer.map(change).boxed()),
        }
    }
}

impl<'a, T> IntoFuture for StoreAnswer<'a, T> {
    type Output = T;
    type IntoFuture = Either<Ready<T>, BoxFuture<'a, T>>;

    fn into_future(self) -> Self::IntoFuture {
        match self {
            Self::Ready(value) => Either::Left(ready(value)),
            Self::Pending(answer) => Either::Right(answer),
        }
    }
}
