"""sFedHP in Python: the bits of algorithm.name = sfedhp (X. Liu et al., Algorithm 1).

Without its schedule of gammas, which are constant here, and its series.
"""

import fedhpc


@fedhpc.algorithm("sfedhp_py", "sFedHP, written in Python (X. Liu et al.)")
class SFedHP(fedhpc.Algorithm):
    tiers = "client-edge-cloud"
    models = "both"

    def declare(self, options):
        sparse = fedhpc.unless("algorithm.gamma1", 0) | fedhpc.unless("algorithm.gamma2", 0)
        options.add("lambda1", 20.0, at_least=0, help="weight of the term lambda1/2 ||theta - phi||^2")
        options.add("lambda2", 20.0, above=0, help="weight of the term lambda2/2 ||phi - w||^2")
        options.add("gamma1", 0.0, at_least=0, help="weight of the smoothed l1 norm of personal models")
        options.add("gamma2", 0.0, at_least=0, help="weight of the smoothed l1 norm of the global model")
        options.add("rho", 6e-5, above=0, help="where the smoothed norm turns linear", acts=sparse)
        options.add("zero_threshold", 1e-3, at_least=0, help="entries up to it are sent as 0", acts=sparse)
        options.add("personal_lr", 0.05, at_least=0, help="learning rate eta_2 of theta")
        options.add("inner_steps", 5, at_least=1, help="steps on theta with each batch (K)")
        options.add("accuracy", 0.0, at_least=0, help="nu: a client's steps end at ||gradient||^2 <= nu")
        options.add("restart", "step", choices=["step", "round"], help="where theta starts",
                    acts=fedhpc.unless("algorithm.edge_rounds", 1))
        options.add("edge_rounds", 20, at_least=1, help="edge rounds per global round (R)")
        options.acts("train.lr_unit", fedhpc.unless("algorithm.name", "sfedhp_py"))
        options.add("beta", 1.0, at_least=0, help="step to the mean of the edges'; 1: the mean")
        options.averaging(weighting="uniform", codec_help="what models become in both directions")

    def initialise(self, setup):
        self.model = setup.initial_model()
        self.edges = setup.initial_edges()
        self.personal = setup.store.rows("personal", self.model)
        self.edge_lr = setup.training.lr
        self.optimizer = setup.optimizer(self.model, lr=self.personal_lr)

    def round(self, round):
        edges = round.edges
        edges.download(self.model, self.edges, self.codec)
        phi = self.edges.clone()

        def edge_round():
            mean = edges.mean()
            for block in round.blocks():
                received = block.download(phi, self.codec)
                theta = self.personalise(block, received, edges.round)
                mean.add(block.edges, block.weights(self.weighting), block.upload_models(theta, self.codec))
            theta = mean.reduce(otherwise=phi)
            for i in edges.training():
                self.update_edge(phi.of(i), self.edges.of(i), theta.of(i), self.edge_lr * round.lr_factor)

        edges.rounds(self.edge_rounds, edge_round)
        if self.gamma2 > 0:
            for i in edges.training():
                self.edges.of(i).zero_small(self.zero_threshold)
        uniform = self.weighting == "uniform"
        weights = edges.equal_weights() if uniform else edges.weights_of_participants(self.weighting)
        mean = edges.upload_mean(self.edges, weights, self.codec, otherwise=self.model)
        mean.approach(self.model, 1 - self.beta)
        self.model = mean
        if self.gamma2 > 0:
            self.model.zero_small(self.zero_threshold)

    def personalise(self, block, phi, edge_round):
        goes_on = self.restart == "round" and edge_round > 0
        theta = self.personal.read(block.clients, phi) if goes_on else phi.clone()

        def take(step):
            step.minimise(theta, self.optimizer, steps=self.inner_steps, accuracy=self.accuracy,
                          mu=self.lambda1, centre=phi, gamma=self.gamma1, rho=self.rho)

        block.each_step(take, alike=self.accuracy == 0)
        if self.gamma1 > 0:
            theta.zero_small(self.zero_threshold)
        block.keep(self.personal, theta)
        block.keep_buffers(theta)
        return theta

    def update_edge(self, phi, w, mean_theta, eta):
        phi.assign(mean_theta)
        phi.approach(w, self.lambda2 / (self.lambda1 + self.lambda2))
        if self.gamma2 > 0:
            phi.zero_small(self.zero_threshold)
        w.descend(eta, mu=self.lambda2, centre=phi, gamma=self.gamma2, rho=self.rho)
        w.copy_columns(phi, "buffer")

    def evaluate(self, evaluation):
        evaluation.global_model(self.model)
        evaluation.edges(self.edges)
        evaluation.each_block(lambda block: block.evaluate(self.personal.read(block.clients, self.model)))

    def visit_state(self, state):
        self.model = state.rows("global", self.model)
        self.edges = state.edges("edges", self.edges)
