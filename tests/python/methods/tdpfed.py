"""TDPFed in Python: the bits of algorithm.name = tdpfed (Q. Wang et al., Algorithm 1 with Stages 1 to 3)."""

import math

import numpy as np

import fedhpc


@fedhpc.algorithm("tdpfed_py", "TDPFed, written in Python (Q. Wang et al.)")
class TDPFed(fedhpc.Algorithm):
    models = "both"
    factorisations = ("cp",)
    can_leave_rounds = True

    def declare(self, options):
        for key in ("optimizer", "momentum", "nesterov", "weight_decay", "clip_norm"):
            options.acts(f"train.{key}", fedhpc.unless("algorithm.name", "tdpfed_py"))
        adam, fit = fedhpc.where("algorithm.factor_solver", "adam"), fedhpc.where("algorithm.factor_solver", "fit")
        for key in ("train.lr", "train.lr_schedule", "train.lr_warmup"):
            options.acts(key, adam)
        options.add("lambda", 12.0, at_least=0, help="weight of the term lambda/2 ||theta - [[A]]||^2")
        options.add("personal_lr", 0.08, at_least=0, help="learning rate of theta")
        options.add("momentum", 0.5, at_least=0, below=1, help="Nesterov momentum of theta")
        options.add("inner_steps", 5, at_least=1, help="Nesterov steps on theta with each batch (s)")
        options.add("factor_steps", 17, at_least=1, help="Adam steps on the factors after each batch", acts=adam)
        options.add("beta", 1.0, at_least=0, help="step to the mean of the clients'; 1: the mean")
        options.add("aggregate", "afm", choices=["afm", "act"], help="what the server averages")
        options.add("broadcast", "factors", choices=["factors", "tensor"], help="what clients receive")
        options.add("factor_solver", "adam", choices=["adam", "fit"], help="how factors follow theta")
        options.add("fit_sweeps", 10, at_least=1, help="sweeps of alternating least squares",
                    acts=fit | fedhpc.where("algorithm.aggregate", "act"))
        options.averaging()

    def initialise(self, setup):
        self.map = setup.factor_map()
        setup.add_metric("composition_error", meaning="mean of ||theta_k - [[A_k]]|| / ||theta_k||")
        for field in self.map.factor_fields():
            setup.add_metric(f"factor_norm.{field.name}", meaning="norm of the server's factor matrix")
        self.factors = setup.initial_factors()
        self.tensor = self.map.expand(self.factors)
        self.personal = setup.store.rows("personal", self.tensor)
        kind = "nesterov" if self.momentum > 0 else "sgd"
        self.nesterov = fedhpc.Optimizer(kind, self.map.full, lr=self.personal_lr, momentum=self.momentum)
        self.adam = fedhpc.Optimizer("adam", self.map.factors, lr=setup.training.lr, scheduled=True)

    def composed(self):
        return self.tensor if self.aggregate == "afm" else self.map.expand(self.factors)

    def round(self, round):
        afm = self.aggregate == "afm"
        composed = self.composed()
        update = round.mean(self.map.factors if afm else self.map.full)
        for block in round.blocks():
            uploaded = block.upload_models(self.client_update(block), self.codec)
            update.add(block.weights(self.weighting),
                       uploaded - self.factors if afm else self.map.expand(uploaded) - composed)
        mean = update.reduce()
        mean.scale(self.beta, "trainable")
        if afm:
            self.factors += mean
            self.tensor = self.map.expand(self.factors)
        else:
            self.tensor = composed + mean
            layers = round.on_server(self.map.layers, lambda l: self.map.fit_layer(
                l, self.tensor, self.factors, self.fit_sweeps))
            self.factors = self.map.assemble(layers, self.tensor)
        for field in self.map.factor_fields():
            factor = np.asarray(self.factors[field.name], dtype=np.float64)
            round.note(f"factor_norm.{field.name}", math.sqrt((factor * factor).sum()))

    def client_update(self, block):
        factors = block.download(self.factors)
        composed = self.map.expand(factors)
        personal = block.download(self.tensor) if self.broadcast == "tensor" else composed.clone()
        gradient = factors.zeros()
        self.adam.reset(factors)

        def take(step):
            step.minimise(personal, self.nesterov, mu=self.lambda_, centre=composed, steps=self.inner_steps)
            theta, a = step.active(personal), step.active(factors)
            if self.factor_solver == "fit":
                a.assign(self.map.fit(theta, a, self.fit_sweeps))
            else:
                for _ in range(self.factor_steps):
                    self.map.distance_gradient(a, theta, self.lambda_, step.active(gradient))
                    step.step(factors, gradient, self.adam)
            self.map.expand(a, step.active(composed))

        block.each_step(take, alike=self.factor_solver == "adam")
        self.map.copy_passed(personal, factors, "buffer")
        block.keep(self.personal, personal)
        block.keep_buffers(personal)
        lengths = personal.squared_lengths().values
        errors = (personal - composed).squared_lengths().values
        ratio = np.divide(errors, lengths, out=np.zeros_like(errors), where=lengths > 0)
        block.note("composition_error", np.sqrt(ratio))
        return factors

    def evaluate(self, evaluation):
        evaluation.global_model(self.tensor)
        evaluation.factors(self.factors)
        start = self.tensor if self.broadcast == "tensor" else self.composed()
        evaluation.each_block(lambda block: block.evaluate(self.personal.read(block.clients, start)))

    def visit_state(self, state):
        self.factors = state.rows("factors", self.factors)
        self.tensor = state.rows("tensor", self.tensor)
