"""Federated averaging in Python: the bits of algorithm.name = fedavg.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, Algorithm 1.

    python3 examples/fedavg.py                                  # or
    python3 -m fedhpc run configs/quickstart.ini --run.plugin=examples/fedavg.py --algorithm.name=fedavg_py
"""

import fedhpc


@fedhpc.algorithm("fedavg_py", "FedAvg, written in Python (McMahan et al., AISTATS 2017)")
class FedAvg(fedhpc.Algorithm):
    can_leave_rounds = True

    def declare(self, options):
        options.averaging()

    def initialise(self, setup):
        self.model = setup.initial_model()                     # [1, P]  w_0

    def round(self, round):
        update = round.mean()
        for block in round.blocks():                           # S_t, C clients at a time
            start = block.download(self.model)                 # [C, P]  w_k <- w_t
            trained = block.train(start)                       # [C, P]  ClientUpdate(k, w_t)
            block.keep_buffers(trained)
            update.add(block.weights(self.weighting), block.upload(trained - start, self.codec))
        self.model += update.reduce()                          # w_{t+1} <- w_t + sum_k n_k/n (w_k - w_t)

    def evaluate(self, evaluation):
        evaluation.global_model(self.model)

    def visit_state(self, state):
        self.model = state.rows("global", self.model)


if __name__ == "__main__":
    results = fedhpc.run({"algorithm.name": "fedavg_py", "run.rounds": 10, "run.output": "fedavg_py.h5"})
    print(results.rounds[["train_loss", "global_accuracy"]])
