"""Bytes on the wire, counted in every process.  A file of its own: workers import it, and with it nothing else."""


def count_bytes():
    """From now on, count what this process hands to its sockets."""
    from distributed.comm import tcp

    write, tcp.tpca_sent = getattr(tcp, "tpca_write", tcp.TCP.write), 0

    async def counted(self, *arguments, **options):
        sent = await write(self, *arguments, **options)
        tcp.tpca_sent += sent
        return sent

    tcp.tpca_write, tcp.TCP.write = write, counted


def bytes_sent():
    from distributed.comm import tcp

    tcp.TCP.write = tcp.tpca_write
    return tcp.tpca_sent
