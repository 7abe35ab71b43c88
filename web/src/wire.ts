// The contract between the core and the page: what `plan`, `catalogue` and `version` take and answer.
// Names and enumerators are the same in C++, JSON and here. Bytes and counts are whole numbers below 2^53.

export type Verdict = 'comfortable' | 'tight' | 'at_risk' | 'does_not_fit' | 'unknown';
export type Confidence = 'high' | 'medium' | 'low';
export type Certainty = 'exact' | 'modelled' | 'measured';
export type Metric = 'allocated' | 'reserved' | 'device';
export type SystemGroup = 'workstation' | 'pcie_server' | 'hgx' | 'rack';

// ---------------------------------------------------------------- request

export interface TrainingRequest {
  objective?: string;
  method?: string;
  framework?: string;
  framework_version?: string | null;
  trainer?: string | null;
  precision?: string;
  base_weights?: string;
  optimizer?: {
    name?: string;
    states?: string;
    paged?: boolean;
    foreach?: boolean;
    fused?: boolean;
    in_backward?: boolean;
    momentum?: boolean;
    master_weights?: boolean;
    rank?: number;
  };
  ema?: boolean;
  fp8_parameters?: boolean;
  mtp_layers?: number;
  fp32_gradients?: boolean;
  lora?: { rank?: number; targets?: string[]; dropout?: number; modules_to_save?: string[]; rslora?: boolean };
  sequence_length?: number;
  micro_batch?: number;
  global_batch?: number;
  packing?: boolean;
  recompute?: string;
  recompute_modules?: string[];
  attention?: string;
  cross_entropy?: string;
  logits_upcast?: boolean | null;
  kernels?: string;
  recurrence?: string | null;
  kbit_upcast?: boolean;
  compile?: boolean;
  trainable_layers?: number;
  moe?: { imbalance?: number; capacity_factor?: number };
  offload?: { optimizer?: boolean; parameters?: boolean; activations?: boolean };
  reference?: string;
  value_model?: string | null;
  reward_model?: string | null;
  generation?: { completion_length?: number; engine_share?: number; generations?: number };
  tokens?: number;
}

export interface PlanRequest {
  model:
    | string
    | { id: string; overrides?: Record<string, number | boolean> }
    | { config: Record<string, unknown> }
    | { parameters: number };
  training?: TrainingRequest;
  hardware?: { gpu: string; count?: number; per_node?: number };
  layout?: {
    dp?: number;
    zero?: number;
    tp?: number;
    sp?: boolean;
    loss_parallel?: boolean;
    pp?: number;
    vpp?: number;
    first_stage_layers?: number;
    last_stage_layers?: number;
    cp?: number;
    cp_exchange?: string;
    ep?: number;
    etp?: number;
    shard?: number;
    fsdp?: 1 | 2;
    reshard?: boolean;
    no_sync?: boolean;
  };
  serving?: { context?: number; users?: number };
}

// ---------------------------------------------------------------- report

// A code, a place in the request (JSON Pointer) and arguments; the page words it (`problem.<code>`, `warning.<code>`).
export interface Notice {
  code: string;
  pointer: string;
  arguments: Record<string, string | number>;
}

export interface Estimate {
  low: number;
  expected: number;
  high: number;
}

// One symbol of a notation: `b` = 1, `s` = 2048. The page words it (`symbol.<name without its _n suffix>`).
export interface Term {
  symbol: string;
  value: number;
}

export interface Component {
  id: string; // i18n key `component.<id>`
  group: 'static' | 'temporary';
  bytes: number;
  formula: string; // i18n key `formula.<formula>`: the rule in words
  notation: string; // e.g. "32*b*s*h*2"; evaluates to `bytes` with `terms`
  terms: Term[];
  certainty: Certainty;
  source: string; // id in catalogue.sources
}

export interface TimelineEvent {
  event: string; // i18n key `event.<event>`: load, forward_embedding, forward_block, forward_head, loss, backward_head, backward_block, …
  block: number | null; // index of the decoder layer, for block events
  live_bytes: number; // the most that is live while the event runs
  by_component: Record<string, number>;
}

export interface Fit {
  verdict: Verdict;
  headroom_bytes: number; // usable minus device.high; negative when it does not fit
  usable_bytes: number; // what a process can use on this card
  rank: number; // the rank that binds
  reasons: Notice[];
}

// An estimate: seconds and tokens a second, nine runs in ten between low and high.
export interface Speed {
  step_seconds: Estimate;
  tokens_per_second: Estimate;
  tokens_per_second_per_gpu: Estimate;
  mfu: number; // of the card's dense peak in the run's precision
  bound: string; // i18n key `bound.<bound>`: what most of the step waits for
  phases: { id: string; seconds: number; bound: string }[]; // i18n key `speed.phase.<id>`; they add up to the step
  budget: { tokens: number; days: Estimate; energy_kwh: number | null } | null; // of training.tokens; energy of the cards at rated power: a ceiling
}

export interface SystemOffer {
  id: string;
  gpus_in_system: number;
  systems_needed: number;
}

export interface HardwareSuggestion {
  gpu: string;
  count: number;
  group: SystemGroup;
  verdict: Verdict;
  device: Estimate; // per GPU
  usable_bytes: number;
  headroom_bytes: number;
  tokens_per_second: number | null; // of all GPUs; null: no estimate
  status: 'shipping' | 'eol' | 'announced';
  confidence: Confidence;
  systems: SystemOffer[]; // empty: no system of the catalogue offers this card
}

// From workstation to rack: what a step up buys.
export interface LadderStep extends HardwareSuggestion {
  role: 'smallest' | 'next_step' | 'fastest';
  times_faster: number | null; // than the smallest
}

// The request with another layout, micro-batch and recomputation.
export interface LayoutSuggestion {
  request: PlanRequest;
  device: Estimate;
  verdict: Verdict;
  tokens_per_second: number | null;
}

// Where the ranks of the run are. Nodes whose GPUs hold the same stages are drawn once.
export interface Placement {
  nodes: number;
  per_node: number;
  kinds: { nodes: number; gpus: PlacedGpu[] }[]; // how many of that kind, and the GPUs of the first
}

// Its place in each group: 0 where there is none.
export interface PlacedGpu {
  rank: number;
  dp: number;
  tp: number;
  pp: number;
  cp: number;
  ep: number;
}

export interface ChangeSuggestion {
  id: string; // i18n key `change.<id>`
  request: PlanRequest; // apply it: planning this request gives exactly the promised figures
  pointer: string;
  from: string | number | boolean;
  to: string | number | boolean;
  device: Estimate;
  saved_bytes: number;
  tokens_per_second: number | null; // after it; null: no estimate
  times_as_fast: number | null; // as before
  verdict: Verdict;
}

// How the need grows with one number of the request.
export interface Curve {
  now: number; // one of the points
  points: { value: number; device: Estimate }[]; // ascending
  largest_that_fits: number | null; // over the whole interval; null: none, or no card is known
  runs_out_at: number | null; // the smallest value whose expected need exceeds the card
}

// For each card the smallest number on which the run fits, by method; null: on no number that was tried.
export interface FitMatrix {
  methods: string[];
  rows: { gpu: string; cells: ({ count: number; verdict: Verdict } | null)[] }[];
}

// Measured runs of one framework and method, in one metric; |planned / measured - 1| in thousandths.
export interface AccuracyGroup {
  framework: string;
  method: string;
  metric: Metric;
  runs: number;
  median_permille: number;
  p90_permille: number;
  worst_permille: number;
  inside_permille: number; // share of the runs inside the planned interval
  width_permille: number; // of that interval: high / low - 1, the mean
}

export interface MeasuredRun {
  id: string;
  source: string; // repository, file and line, or issue
  date: string; // yyyy, yyyy-mm or yyyy-mm-dd; "" when unknown
  metric: Metric;
  measured_bytes: number;
  planned_bytes: number;
  difference_permille: number; // planned / measured - 1
  request: PlanRequest; // plan it: the same figures
}

export interface Report {
  version: string;
  problems: Notice[]; // not empty: nothing but `version` and `problems` is present
  warnings?: Notice[];
  request?: PlanRequest; // as understood, every default filled in, with its layout
  layout_chosen?: boolean; // the layout is the planner's choice: the request named none
  model?: {
    id: string;
    label: string;
    model_type: string;
    parameters: number;
    trainable: number;
    active: number;
    layers: number;
    inferred: boolean;
    confidence: Confidence;
    source: string;
  };
  memory?: {
    per_gpu: { allocated: Estimate; reserved: Estimate; device: Estimate };
    components: Component[]; // adds up to allocated.expected at the peak
    peak: { event: string; block: number | null };
    first_step_bytes: number; // allocated at the peak of the very first step, before there are optimizer states
    beyond_allocated: Component[]; // allocator slack, CUDA context, communication: adds up to device.expected - allocated.expected
    layers: { first: number; count: number; kept_bytes: number }[]; // runs of identical layers; what one keeps from forward to backward
    stages: { stage: number; allocated: Estimate; reserved: Estimate; device: Estimate }[];
  };
  timeline?: TimelineEvent[];
  host_memory?: { per_node_bytes: number; components?: { id: string; bytes: number }[] }; // offloaded or paged; components add up to it
  fit?: Fit | null; // null: no GPU chosen
  layouts?: { tried: number; evaluated: number; best: LayoutSuggestion[] }; // the fastest that fit; none: no GPU chosen
  placement?: Placement | null; // null: no GPU chosen
  curves?: { limit_bytes: number; micro_batch: Curve; sequence_length: Curve }; // limit 0: no card is known
  fit_matrix?: FitMatrix;
  speed?: Speed | { refused: string } | null; // null: no GPU chosen; refused: i18n key `speed.refused.<reason>`
  // not_fitting: GPUs that are left out, and why (i18n key `reason.<reason>`)
  suggestions?: {
    systems: HardwareSuggestion[];
    ladder: LadderStep[]; // at most three, the smallest first
    not_fitting?: { gpu: string; reason: string }[];
    changes: ChangeSuggestion[];
  };
  accuracy?: {
    group: AccuracyGroup | null; // null: no measured run of this framework and method
    nearest: MeasuredRun[]; // the nearest first
  };
  launch?: LaunchText[];
  launch_left_out?: { id: string; reason: string; pointer: string }[]; // i18n key `launch.reason.<reason>`
  growth?: Growth[]; // empty: no GPU chosen, or nobody published what it holds
  after_training?: AfterTraining;
}

// One file; those of one id belong together, the last is the command.
export interface LaunchText {
  id: string; // i18n key `launch.framework.<id>`
  filename: string;
  format: 'yaml' | 'json' | 'shell';
  text: string;
}

export interface GrowthModel {
  model: string;
  parameters: number;
  gpus: number;
  device: Estimate; // per GPU
  verdict: Verdict;
}

export interface Growth {
  method: string;
  largest: GrowthModel | null; // on the GPUs of the request; null: none of the catalogue fits
  next: GrowthModel | null; // the next size up, on as many of these GPUs as it takes
}

export interface AfterTraining {
  merge: { host_bytes: number; card_bytes: number } | null; // null: nothing to merge
  merged_bytes: number;
  checkpoints: { adapter_bytes: number | null; weights_bytes: number; training_state_bytes: number };
  serving: {
    context: number;
    users: number;
    cache_bytes_per_token: number;
    state_bytes_per_user: number; // of recurrent layers
    cache_bytes: number; // of all users
    rows: { weights: string; weights_bytes: number; total_bytes: number }[];
  };
}

// ---------------------------------------------------------------- diagnosis

export interface CardPart {
  id: string; // i18n key `part.<id>`
  bytes: number;
  name?: string; // of a process
}

// What filled a card, read from PyTorch's message or nvidia-smi's table.
export interface Diagnosis {
  kind: 'pytorch_out_of_memory' | 'nvidia_smi';
  cards: { index: number; capacity_bytes: number; gpus: string[]; parts: CardPart[] }[]; // gpus: of the catalogue, that large
  requested_bytes: number; // by the allocation that failed; 0: none did
  shortage_bytes: number;
  findings: string[]; // i18n key `finding.<id>`
}

export interface DiagnosisAnswer {
  version: string;
  problems: Notice[];
  diagnosis?: Diagnosis | null; // null: the text is neither
  changes?: ChangeSuggestion[]; // those of the run that free the shortage
}

// ---------------------------------------------------------------- catalogue

export interface CatalogueModel {
  id: string;
  label: string;
  family: string;
  release: string; // yyyy-mm or ""
  parameters: number;
  active: number;
  layers: number;
  max_position_embeddings: number;
  aliases: string[];
  confidence: Confidence;
}

export interface CatalogueGpu {
  id: string;
  name: string;
  vendor: string;
  architecture: string;
  form_factor: string;
  status: 'shipping' | 'eol' | 'announced';
  memory_gb: number;
  usable_bytes: number; // 0: not published
  memory_bandwidth_gb_per_s: number;
  link_gb_per_s: number;
  group: SystemGroup;
  max_per_server: number;
  unsupported_precisions: string[];
  confidence: Confidence;
  doubtful: string[];
}

export interface CatalogueSystem {
  id: string;
  name: string;
  vendor: string;
  type: string;
  group: SystemGroup;
  status: 'shipping' | 'eol' | 'announced';
  gpus: string[];
  gpu_counts: number[];
  topology: string;
  max_power_kw: number;
  confidence: Confidence;
}

// One field of the request: its values (those that can be planned today) and its default, or its range.
export interface Option {
  pointer: string; // e.g. "/training/method"
  values?: string[];
  minimum?: number;
  maximum?: number;
  format?: 'version'; // a text of that form
  frameworks?: string[]; // that have it; absent: all
  default: string | number | boolean | string[] | null; // null: decided by the planner (echoed in report.request)
}

export interface Source {
  id: string;
  title: string;
  url: string;
}

export interface Catalogue {
  version: string;
  models: CatalogueModel[];
  gpus: CatalogueGpu[];
  systems: CatalogueSystem[];
  options: Option[];
  sources: Source[];
}
