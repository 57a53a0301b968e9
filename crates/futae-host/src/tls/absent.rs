//! Replaces TLS in a build without it: none of these types has a value.

use super::{TlsAllow, TlsError, TlsOptions};
use crate::HostError;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::convert::Infallible;
use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;

pub(crate) struct ServerTerms(Infallible);

impl ServerTerms {
    pub(crate) fn load(_: &TlsOptions) -> Result<Self, HostError> {
        Err(HostError::NoTls)
    }

    pub(crate) fn allow(&self) -> &[TlsAllow] {
        match self.0 {}
    }
}

pub(crate) struct TlsStream<'a>(Infallible, PhantomData<&'a ()>);

impl<'a> TlsStream<'a> {
    pub(crate) fn new(_: BorrowedFd<'a>, terms: &ServerTerms) -> Result<Self, TlsError> {
        match terms.0 {}
    }

    pub(crate) fn shake_hands<E: From<TlsError>>(
        &mut self,
        _: impl FnMut(bool) -> Result<(), E>,
    ) -> Result<Vec<String>, E> {
        match self.0 {}
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'a> {
        match self.0 {}
    }

    pub(crate) fn receive(
        &mut self,
        _: &mut [IoSliceMut<'_>],
        _: RecvFlags,
    ) -> Result<usize, Errno> {
        match self.0 {}
    }

    pub(crate) fn send(&mut self, _: &mut [IoSlice<'_>]) -> Result<usize, Errno> {
        match self.0 {}
    }

    pub(crate) fn has_unsent(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn flush(&mut self) -> Result<usize, Errno> {
        match self.0 {}
    }

    pub(crate) fn say_goodbye(&mut self) {
        match self.0 {}
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        match self.0 {}
    }
}
