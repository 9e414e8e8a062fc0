"""What one TCP stream carries between the first two ranks of a world: prints MB/s on rank 0.

usage: stream.py, with RANK, MASTER_ADDR and MASTER_PORT
"""

import os
import socket
import time

SECONDS = 2
PIECE = 1 << 20

place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
buffer = bytearray(PIECE)
if os.environ["RANK"] == "0":
    with socket.create_server(place) as server:
        peer, _ = server.accept()
    received, begun = 0, time.perf_counter()
    while count := peer.recv_into(buffer):
        received += count
    print(round(received / (time.perf_counter() - begun) / 1e6))
else:
    while True:
        try:
            peer = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        peer.sendall(buffer)
    peer.close()
