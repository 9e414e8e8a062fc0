# Medians over rounds, and ratios of each peer to muster with their least and greatest. The first two peers are two ways of muster.
# Input: peer ranks round cell median_us wrong. Variables: peers, rounds, ranks, cells.

function middle(list, count, i, j, swap) {
    for (i = 2; i <= count; i++)
        for (j = i; j > 1 && list[j] < list[j - 1]; j--) {
            swap = list[j]; list[j] = list[j - 1]; list[j - 1] = swap
        }
    return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
}

function time_of(peer, n, cell, r, count, list) {
    count = 0
    for (r = 1; r <= rounds; r++)
        if ((peer, n, r, cell) in time) list[++count] = time[peer, n, r, cell]
    return count ? sprintf("%.2f", middle(list, count)) : "-"
}

# How many times as long the peer took as muster in this way, in single rounds.
function ratio_of(peer, way, n, cell, r, count, list, m) {
    count = 0
    for (r = 1; r <= rounds; r++)
        if (((peer, n, r, cell) in time) && ((way, n, r, cell) in time))
            list[++count] = time[peer, n, r, cell] / time[way, n, r, cell]
    if (!count) return "-"
    m = middle(list, count)
    return sprintf("%.2f (%.2f-%.2f)", m, list[1], list[count])
}

{ time[$1, $2, $3, $4] = $5; if ($6 > 0) print "wrong data: " $1 " " $4 " on " $2 " ranks: " $6 " elements" }

END {
    peer_count = split(peers, peer, " ")
    rank_count = split(ranks, n, ",")
    cell_count = split(cells, cell, " ")
    for (i = 1; i <= rank_count; i++) {
        print "\n" n[i] " ranks: median us; how many times as long as muster " peer[1] " (least-greatest of rounds), and as muster " peer[2]
        for (j = 1; j <= cell_count; j++) {
            line = sprintf("  %-24s muster %s %s, %s %s", cell[j], peer[1], time_of(peer[1], n[i], cell[j]), peer[2], time_of(peer[2], n[i], cell[j]))
            for (k = 3; k <= peer_count; k++)
                line = line sprintf("; %s %s us: %s, %s", peer[k], time_of(peer[k], n[i], cell[j]), \
                    ratio_of(peer[k], peer[1], n[i], cell[j]), ratio_of(peer[k], peer[2], n[i], cell[j]))
            print line
        }
    }
}
