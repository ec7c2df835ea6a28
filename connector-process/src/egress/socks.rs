//! SOCKS5 (RFC 1928): `CONNECT` without a password, which is all that programs need.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use goondan_clock::timeout;
use goondan_protocol::sandbox::Host;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::refusal::{EgressDenial, EgressFaultParty};
use super::rules::EgressRules;
use super::target::Target;
use super::{tunnel, way};
use crate::limits::HEADER_READ_TIMEOUT_MS;

/// The version, the first byte of every message.
pub(super) const VERSION: u8 = 5;

const NO_PASSWORD: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Reply {
    Done = 0,
    Denied = 2,
    Unreachable = 4,
    NoSuchCommand = 7,
    NoSuchAddress = 8,
}

/// Serves a program that speaks SOCKS5.
pub(super) async fn serve<P>(mut program: P, rules: &EgressRules) -> io::Result<()>
where
    P: AsyncRead + AsyncWrite + Unpin,
{
    let time_limit = Duration::from_millis(HEADER_READ_TIMEOUT_MS);
    let asked = timeout(time_limit, ask(&mut program)).await;
    let Some(asked) = asked.map_err(|_elapsed| io::ErrorKind::TimedOut)?? else {
        return Ok(());
    };
    match open(asked, rules).await {
        Ok((server, target)) => {
            answer(&mut program, Reply::Done).await?;
            tunnel::pass_on(program, server, &target, rules).await
        }
        Err(refusal) => {
            rules.tell_refused(&refusal);
            let reply = match refusal.fault() {
                EgressFaultParty::Denied => Reply::Denied,
                EgressFaultParty::Failed => Reply::Unreachable,
                EgressFaultParty::Asked => Reply::NoSuchAddress,
            };
            answer(&mut program, reply).await
        }
    }
}

async fn open(
    asked: Result<Target, EgressDenial>,
    rules: &EgressRules,
) -> Result<(TcpStream, Target), EgressDenial> {
    let target = asked?;
    let server = way::connect(rules, &target).await?;
    Ok((server, target))
}

/// Reads the program's target; `None` if an unsupported request was rejected.
async fn ask<P>(program: &mut P) -> io::Result<Option<Result<Target, EgressDenial>>>
where
    P: AsyncRead + AsyncWrite + Unpin,
{
    let [_version, count] = take(program).await?;
    let mut methods = vec![0; count.into()];
    program.read_exact(&mut methods).await?;
    if !methods.contains(&NO_PASSWORD) {
        program.write_all(&[VERSION, NO_METHOD]).await?;
        return Ok(None);
    }
    program.write_all(&[VERSION, NO_PASSWORD]).await?;
    let [_version, command, _reserved, kind] = take(program).await?;
    if command != CONNECT {
        answer(program, Reply::NoSuchCommand).await?;
        return Ok(None);
    }
    let host = match kind {
        1 => Ok(Host::Address(
            Ipv4Addr::from(take::<4, P>(program).await?).into(),
        )),
        3 => {
            let [length] = take(program).await?;
            let mut name = vec![0; length.into()];
            program.read_exact(&mut name).await?;
            Err(String::from_utf8_lossy(&name).into_owned())
        }
        4 => Ok(Host::Address(
            Ipv6Addr::from(take::<16, P>(program).await?).into(),
        )),
        _ => {
            answer(program, Reply::NoSuchAddress).await?;
            return Ok(None);
        }
    };
    let port = u16::from_be_bytes(take(program).await?);
    Ok(Some(match host {
        Ok(host) => Ok(Target { host, port }),
        Err(name) => Target::read(&name, port).map_err(EgressDenial::from),
    }))
}

async fn take<const N: usize, P: AsyncRead + Unpin>(program: &mut P) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    program.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn answer<P: AsyncWrite + Unpin>(program: &mut P, reply: Reply) -> io::Result<()> {
    // The bound address is zero, because programs do not use it.
    let answer = [VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0];
    program.write_all(&answer).await
}
