//! Forwards data between a program and a host.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};

use super::hello::{ACCESS_DENIED, PreambleVerdict, judge};
use super::rules::EgressRules;
use super::target::Target;

/// Bytes per read until the first bytes are checked.
const CHUNK_BYTES: usize = 4 * 1024;

/// Forwards data in both directions until both have ended. The first bytes of the program are held
/// back until they are checked; data from the host is forwarded in the meantime.
pub(super) async fn pass_on<P, S>(
    mut program: P,
    mut server: S,
    target: &Target,
    rules: &EgressRules,
) -> io::Result<()>
where
    P: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut said, mut heard) = (BytesMut::new(), vec![0; CHUNK_BYTES]);
    loop {
        said.reserve(CHUNK_BYTES);
        tokio::select! {
            count = program.read_buf(&mut said) => {
                if count? == 0 {
                    return Ok(());
                }
                match judge(&said, target) {
                    PreambleVerdict::More => {}
                    PreambleVerdict::Good => break,
                    PreambleVerdict::Bad(why) => {
                        rules.tell_refused(why);
                        program.write_all(&ACCESS_DENIED).await?;
                        return program.shutdown().await;
                    }
                }
            }
            count = server.read(&mut heard) => {
                match heard.get(..count?) {
                    Some(heard) if !heard.is_empty() => program.write_all(heard).await?,
                    Some(_) | None => return program.shutdown().await,
                }
            }
        }
    }
    server.write_all(&said).await?;
    drop((said, heard));
    copy_bidirectional(&mut program, &mut server).await?;
    Ok(())
}
