"""Systems of differential equations, initial and boundary values."""

import numpy as np
from scipy.integrate import RK45, ode, odeint, solve_bvp, solve_ivp


def _lorenz(t, state, sigma=10.0, rho=28.0, beta=8 / 3):
    x, y, z = state
    return [sigma * (y - x), x * (rho - z) - y, x * y - beta * z]


def lorenz_by_every_method(args):
    found = {}
    for method in ("RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA"):
        run = solve_ivp(_lorenz, (0, 2), [1.0, 1.0, 1.0], method=method, rtol=1e-6)
        found[method] = [run.y[:, -1].tolist(), int(run.nfev), len(run.t)]
    return found


def bouncing_ball_with_events(args):
    def fall(t, state):
        return [state[1], -9.81]

    def hits_ground(t, state):
        return state[0]

    hits_ground.terminal = True
    hits_ground.direction = -1
    times, state, now = [], [10.0, 0.0], 0.0
    for _ in range(5):
        run = solve_ivp(fall, (now, now + 10), state, events=hits_ground, max_step=0.1)
        now = float(run.t_events[0][0])
        times.append(now)
        state = [0.0, -0.8 * run.y_events[0][0][1]]
    return times


def stiff_chemistry_in_the_older_interface(args):
    def robertson(y, t):
        a = -0.04 * y[0] + 1e4 * y[1] * y[2]
        c = 3e7 * y[1] ** 2
        return [a, -a - c, c]

    path = odeint(robertson, [1.0, 0.0, 0.0], [0, 0.4, 4, 40, 400])
    return path.tolist()


def solvers_that_step(args):
    found = []
    for name in ("vode", "lsoda", "dopri5", "dop853"):
        solver = ode(lambda t, y, k: [-k * y[0], k * y[0] - y[1]]).set_integrator(name)
        solver.set_initial_value([1.0, 0.0], 0.0).set_f_params(0.7)
        while solver.successful() and solver.t < 2:
            solver.integrate(solver.t + 0.25)
        found.append(solver.y.tolist())
    stepper = RK45(_lorenz, 0.0, [1.0, 1.0, 1.0], 0.5)
    while stepper.status == "running":
        stepper.step()
    return found, stepper.y.tolist(), stepper.nfev


def beam_between_two_walls(args):
    def bend(x, y):
        return np.vstack((y[1], -np.exp(y[0])))

    def ends(left, right):
        return np.array([left[0], right[0]])

    x = np.linspace(0, 1, 7)
    found = solve_bvp(bend, ends, x, np.zeros((2, x.size)))
    return found.sol(np.linspace(0, 1, 11))[0].tolist(), found.niter


def dense_output_is_a_function(args):
    run = solve_ivp(lambda t, y: [y[1], -y[0]], (0, 10), [0.0, 1.0], dense_output=True)
    return run.sol(np.linspace(0, 10, 21))[0].tolist()
