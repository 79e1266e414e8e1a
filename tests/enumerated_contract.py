"""The part of the contract of a chain backend whose truth is all labellings written out (`enumeration`)."""

import torch
from contract import INF, Backend, Case, close
from enumeration import chains


def enumerated_log_partition(b: Backend, case: Case) -> None:
    """log Z, -log P(labels) and their gradients, by autograd through the sum over all labellings."""
    p, exact, weight = case.on(b), case.exact(), case.weight()
    u, w = (x.requires_grad_() for x in exact[:2])
    for y in (None, case.labels()):
        labels = None if y is None else y.to(b.device)
        value, alpha = b.module.forward(*p, labels)
        got = b.module.marginals(weight.to(b.device), *p, alpha, labels)
        total = 0 * (u[u > -INF].sum() + w[w > -INF].sum())
        for index, one in chains(u, w, p.lengths.cpu()):
            log_z, n = one.log_partition(), int(exact.lengths[index])
            score = torch.zeros(()) if y is None else one.score(y[index][:n])
            want = torch.tensor(INF, dtype=torch.float64) if score == -INF else (log_z - score).detach()
            close(value[index], want, case.tolerance(b))
            total = total + weight[index] * ((log_z if log_z > -INF else 0) - score)
        for x, z in zip(got, torch.autograd.grad(total, (u, w)), strict=True):
            close(x, z, case.tolerance(b))


def enumerated_decode(b: Backend, case: Case) -> None:
    """The labels attain the highest score of all labellings."""
    exact = case.exact()
    labels, best = (x.cpu() for x in b.module.decode(*case.on(b)))
    for index, one in chains(*exact):
        want, n = one.scores.max(), int(exact.lengths[index])
        close(best[index], want, case.tolerance(b))
        found = labels[index][:n] if want > -INF else one.labels[one.scores.argmax()]
        close(one.score(found), want, case.tolerance(b))
        assert (labels[index][n if want > -INF else 0 :] == -100).all()


def enumerated_derivatives_of_marginals(b: Backend, case: Case) -> None:
    """`transport` and the gradient of the cross-entropy, by autograd through enumerated marginals; finite scores."""
    p, exact, weight, labels = case.on(b), case.exact(), case.weight(), case.labels()
    nodes, edges = case.normal(*exact.unary.shape), case.normal(*exact.pairwise.shape)
    u, w = (x.requires_grad_() for x in exact[:2])
    all_edges = edges.double().expand(*u.shape[:-2], u.shape[-2] - 1, *edges.shape[-2:])
    known = b.module.messages(*p)
    loss, known_loss = b.module.cross_entropy(*p, labels.to(b.device))
    clean = p if b.name == "cpu" else Case(p).on(Backend("plain torch", None, b.device))
    on_device = nodes.to(b.device), edges.to(b.device), weight.to(b.device)
    moved, gradient, expected = b.module.transport(*on_device, *clean, known)
    transported = cross = 0 * (u.sum() + w.sum())
    atol = case.tolerance(b) * (40 + nodes.numel())
    for index, one in chains(u, w, exact.lengths):
        n = int(exact.lengths[index])
        log_p, xi = one.marginals().log(), one.edge_marginals()
        close(known.log_p[index][:n], log_p.detach(), case.tolerance(b))
        on_edges = (all_edges[index][: n - 1] * xi).sum()
        close(expected[index], on_edges.detach(), atol)
        one_loss = -log_p.gather(-1, labels[index][:n, None]).mean()
        close(loss[index], one_loss.detach(), case.tolerance(b))
        transported = transported + weight[index] * ((nodes[index][:n] * log_p).sum() + on_edges)
        cross = cross + weight[index] * one_loss
    for x, z in zip((moved, gradient), torch.autograd.grad(transported, (u, w), retain_graph=True), strict=True):
        close(x, z, atol)
    got = b.module.cross_entropy_gradient(weight.to(b.device), *p, labels.to(b.device), known_loss)
    for x, z in zip(got, torch.autograd.grad(cross, (u, w)), strict=True):
        close(x, z, atol)


ENUMERATED = [enumerated_log_partition, enumerated_decode]


ENUMERATED_FINITE = [enumerated_derivatives_of_marginals]
