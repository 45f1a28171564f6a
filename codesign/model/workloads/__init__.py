"""Workloads: models and jobs that lower a plan to operations."""

from . import goodput as goodput
from . import kinds as kinds
from . import open_loop as open_loop
from . import pools_apart as pools_apart
from . import prefix_reuse as prefix_reuse
from . import steady_state as steady_state
from .any_schedule import AnySchedule as AnySchedule
from .attention import AbstractAttention as AbstractAttention
from .attention import GroupedQueryAttention as GroupedQueryAttention
from .attention import LatentAttention as LatentAttention
from .attention_ffn import AttentionFfnServing as AttentionFfnServing
from .base import AbstractWorkload as AbstractWorkload
from .base import FamilyVocabulary as FamilyVocabulary
from .broken_rules import SupportedLayouts as SupportedLayouts
from .continuous import ContinuousServing as ContinuousServing
from .daily_load import read_load as read_load
from .diffusion import DiffusionTransformer as DiffusionTransformer
from .diffusion import ImagePlan as ImagePlan
from .diffusion import ImageSampling as ImageSampling
from .disaggregated import DisaggregatedServing as DisaggregatedServing
from .engine_memory import EngineMemory as EngineMemory
from .feed_forward import AbstractFeedForward as AbstractFeedForward
from .feed_forward import DenseFeedForward as DenseFeedForward
from .feed_forward import ExpertLoad as ExpertLoad
from .feed_forward import MixtureOfExperts as MixtureOfExperts
from .goodput import SLO as SLO
from .goodput import GoodputServing as GoodputServing
from .goodput import ServingAtRate as ServingAtRate
from .hub import from_config_json as from_config_json
from .hub import transformer_from_dict as transformer_from_dict
from .hub_architectures import Architecture as Architecture
from .hub_table import ARCHITECTURES as ARCHITECTURES
from .hub_table import general as architecture_by_keys
from .layer_kinds import MixedAttention as MixedAttention
from .layer_kinds import MixedFeedForward as MixedFeedForward
from .layer_operations import Precision as Precision
from .linear_attention import AlternatingAttention as AlternatingAttention
from .linear_attention import LinearAttention as LinearAttention
from .lowering import indivisible as indivisible
from .mixed_training import MixedTraining as MixedTraining
from .number_formats import WeightFormats as WeightFormats
from .optimizer import AbstractOptimizer as AbstractOptimizer
from .optimizer import Adam as Adam
from .optimizer import Muon as Muon
from .plan import Layout as Layout
from .plan import Plan as Plan
from .plan_fields import AbstractPlan as AbstractPlan
from .plan_fields import named as named
from .pools_under_load import DisaggregatedAtRate as DisaggregatedAtRate
from .pools_under_load import DisaggregatedClients as DisaggregatedClients
from .pools_under_load import DisaggregatedGoodput as DisaggregatedGoodput
from .post_training import RlPostTraining as RlPostTraining
from .post_training import RolloutEngine as RolloutEngine
from .post_training_plan import PostTrainingPlan as PostTrainingPlan
from .prefixes import PopularPrefixes as PopularPrefixes
from .prefixes import PrefixCaching as PrefixCaching
from .prefixes import TracedPrefixes as TracedPrefixes
from .recommendation import Recommendation as Recommendation
from .recommendation import RecommendationTraining as RecommendationTraining
from .recommendation_model import EmbeddingTables as EmbeddingTables
from .recommendation_model import RecommendationModel as RecommendationModel
from .schedule import CommOp as CommOp
from .schedule import ComputeOp as ComputeOp
from .schedule import Op as Op
from .schedule import Priced as Priced
from .schedule import Slowdowns as Slowdowns
from .schedule import Timeline as Timeline
from .schedule import TransferOp as TransferOp
from .schedule import total as total
from .served import AbstractServing as AbstractServing
from .served_run import ServedRun as ServedRun
from .shaped_plan import ShapedPlan as ShapedPlan
from .sparse_attention import CompressedAttention as CompressedAttention
from .sparse_attention import EntryIndex as EntryIndex
from .sparse_attention import LocalAttention as LocalAttention
from .sparse_attention import SparseAttention as SparseAttention
from .static_batch import StaticBatch as StaticBatch
from .steady_state import Lockstep as Lockstep
from .training import Training as Training
from .training_memory import TrainerBuffers as TrainerBuffers
from .training_run import TrainingRun as TrainingRun
from .transformer import ExtraEmbeddings as ExtraEmbeddings
from .transformer import Transformer as Transformer
from .transformer import VisionEncoder as VisionEncoder

__all__ = [
    "ARCHITECTURES",
    "SLO",
    "AbstractAttention",
    "AbstractFeedForward",
    "AbstractOptimizer",
    "AbstractPlan",
    "AbstractServing",
    "AbstractWorkload",
    "Adam",
    "AlternatingAttention",
    "AnySchedule",
    "Architecture",
    "AttentionFfnServing",
    "CommOp",
    "CompressedAttention",
    "ComputeOp",
    "ContinuousServing",
    "DenseFeedForward",
    "DiffusionTransformer",
    "DisaggregatedAtRate",
    "DisaggregatedClients",
    "DisaggregatedGoodput",
    "DisaggregatedServing",
    "EmbeddingTables",
    "EngineMemory",
    "EntryIndex",
    "ExpertLoad",
    "ExtraEmbeddings",
    "FamilyVocabulary",
    "GoodputServing",
    "GroupedQueryAttention",
    "ImagePlan",
    "ImageSampling",
    "LatentAttention",
    "Layout",
    "LinearAttention",
    "LocalAttention",
    "Lockstep",
    "MixedAttention",
    "MixedFeedForward",
    "MixedTraining",
    "MixtureOfExperts",
    "Muon",
    "Op",
    "Plan",
    "PopularPrefixes",
    "PostTrainingPlan",
    "Precision",
    "PrefixCaching",
    "Priced",
    "Recommendation",
    "RecommendationModel",
    "RecommendationTraining",
    "RlPostTraining",
    "RolloutEngine",
    "ServedRun",
    "ServingAtRate",
    "ShapedPlan",
    "Slowdowns",
    "SparseAttention",
    "StaticBatch",
    "SupportedLayouts",
    "Timeline",
    "TracedPrefixes",
    "TrainerBuffers",
    "Training",
    "TrainingRun",
    "TransferOp",
    "Transformer",
    "VisionEncoder",
    "WeightFormats",
    "architecture_by_keys",
    "from_config_json",
    "goodput",
    "indivisible",
    "kinds",
    "named",
    "open_loop",
    "pools_apart",
    "prefix_reuse",
    "read_load",
    "steady_state",
    "total",
    "transformer_from_dict",
]
