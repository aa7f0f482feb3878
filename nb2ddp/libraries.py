"""List the names of the libraries that notebooks use, by what the functions and classes do.

Plain data, so that a new class or function is one line here.
"""

from __future__ import annotations

import re
import sys

# Packages whose import is slow or initialises CUDA: the rank's device must be selected before.
HEAVY_PACKAGES = frozenset(
    "unsloth unsloth_zoo torch transformers trl peft accelerate bitsandbytes datasets vllm xformers "
    "sentence_transformers torchvision torchaudio diffusers timm tensorflow jax pantheraml lightning "
    "pytorch_lightning tensorboardX".split()
)

# The modules that the init block imports, by the name that it binds: the notebook may import them too.
OUR_IMPORTS = {
    "dist": frozenset({"torch.distributed"}),
    "DDP": frozenset({"torch.nn.parallel.DistributedDataParallel"}),
    "timedelta": frozenset({"datetime.timedelta"}),
    "torch": frozenset({"torch"}),
    "numpy": frozenset({"numpy"}),
} | {name: frozenset({name}) for name in sys.stdlib_module_names}

# Before the names of the standard library in code that runs under Python 2, too.
OLD_PREFIX = re.compile(r"^(?:six|future)\.moves\.")

# Unsloth, and forks that kept its names.
UNSLOTH_SHARDS = "2026.10.8"  # the first Unsloth whose own FSDP2 runs under torchrun
UNSLOTH_PACKAGES = frozenset({"unsloth", "pantheraml"})

TRAINER_PACKAGES = frozenset("trl transformers unsloth_zoo sentence_transformers".split()) | UNSLOTH_PACKAGES

# The names that notebooks use after `from PACKAGE import *`.
STAR_EXPORTS = {
    "matplotlib": frozenset(
        "plot hist scatter bar barh imshow boxplot pie fill_between errorbar contourf semilogy semilogx loglog figure "
        "subplot subplots title xlabel ylabel legend savefig show close".split()
    ),
    "unsloth": frozenset(
        "FastLanguageModel FastVisionModel FastModel FastTextModel FastSentenceTransformer FastLlamaModel "
        "FastMistralModel FastQwen2Model FastGemmaModel is_bfloat16_supported UnslothTrainer "
        "UnslothTrainingArguments UnslothVisionDataCollator train_on_responses_only get_chat_template "
        "standardize_sharegpt unsloth_train".split()
    ),
    "trl": frozenset(
        "SFTTrainer SFTConfig DPOTrainer DPOConfig ORPOTrainer ORPOConfig KTOTrainer KTOConfig GRPOTrainer "
        "GRPOConfig RewardTrainer RewardConfig".split()
    ),
    "transformers": frozenset(
        "Trainer TrainingArguments Seq2SeqTrainer Seq2SeqTrainingArguments AutoModelForCausalLM "
        "AutoTokenizer AutoModelForSequenceClassification AutoModelForSeq2SeqLM TextStreamer".split()
    ),
    "peft": frozenset("LoraConfig get_peft_model PeftModel TaskType prepare_model_for_kbit_training".split()),
    "datasets": frozenset("load_dataset Dataset DatasetDict load_from_disk concatenate_datasets".split()),
}

# Ends of classes whose `from_pretrained` loads no model: tokenizers, processors, configurations.
NO_MODEL = ("Tokenizer", "Processor", "Config", "FeatureExtractor", "Scheduler", "TokenizerFast")


def is_model_class(name: str) -> bool:
    """Return whether ``name.from_pretrained`` loads model weights."""
    if not name or name.endswith(NO_MODEL):
        return False
    return name.startswith(("Fast", "Auto", "Peft")) or "Model" in name or "For" in name or "LM" in name


def is_built_model(name: str) -> bool:
    """Return whether calling a class of Transformers makes a model: ``LlamaForCausalLM(config)``."""
    return (
        is_model_class(name)
        and not name.startswith(("Auto", "Data"))
        and ("For" in name or name[-5:] == "Model")
    )


MODEL_WRAPPERS = frozenset(
    "get_peft_model prepare_model_for_kbit_training prepare_model_for_int8_training patch_peft_model".split()
)
# Calls that make a model, other than ``from_pretrained``.
MODULES = frozenset(
    "torch.nn.Linear torch.nn.Sequential torch.nn.Transformer torch.nn.LSTM torch.nn.GRU torch.nn.RNN "
    "timm.create_model torchvision.models.resnet18 torchvision.models.resnet50".split()
)
MODEL_METHODS = frozenset(
    "to cuda half float double bfloat16 eval train requires_grad_ merge_and_unload module".split()
)

# Methods of a model that give what an optimizer trains.
PARAMETER_METHODS = frozenset({"parameters", "named_parameters"})

# What makes a model and runs it on a GPU of its choice.
PIPELINES = frozenset({"transformers.pipeline", "transformers.pipelines.pipeline"})
# Functions that lay a model out over devices, and packages whose calls take ``device_map=`` as a dict.
MAPPING_PACKAGES = UNSLOTH_PACKAGES | frozenset(
    "transformers accelerate peft trl optimum auto_gptq gptqmodel awq sentence_transformers".split()
)

DATASET_MAKERS = frozenset(
    "datasets.load_dataset datasets.load_from_disk datasets.Dataset.load_from_disk "
    "datasets.DatasetDict.load_from_disk datasets.concatenate_datasets "
    "datasets.interleave_datasets datasets.Dataset.from_dict datasets.Dataset.from_list "
    "datasets.Dataset.from_pandas datasets.Dataset.from_generator datasets.Dataset.from_json "
    "datasets.Dataset.from_csv datasets.DatasetDict datasets.Dataset.from_parquet".split()
)
DATASET_METHODS = frozenset(
    "map filter select shuffle sort train_test_split rename_column rename_columns remove_columns "
    "select_columns cast cast_column with_format with_transform flatten take skip shard add_column "
    "class_encode_column to_iterable_dataset".split()
)
# Functions that return their first argument, prepared.
DATASET_FUNCTIONS = frozenset(
    "unsloth.chat_templates.standardize_sharegpt unsloth.chat_templates.standardize_data_formats "
    "unsloth.standardize_sharegpt unsloth.to_sharegpt unsloth.chat_templates.to_sharegpt "
    "unsloth.apply_chat_template unsloth.standardize_data_formats".split()
)
# Functions whose result is cached on disk, for other processes to read.
CACHED_FUNCTIONS = DATASET_FUNCTIONS | frozenset(
    "datasets.load_dataset datasets.Dataset.from_generator datasets.Dataset.from_json "
    "datasets.Dataset.from_csv datasets.Dataset.from_parquet huggingface_hub.Repository optuna.create_study "
    "optuna.study.create_study".split()
)
# Functions and classes of libraries that download by their name, or always do, and find the files again afterwards.
DOWNLOADS = re.compile(
    r"^(?!google\.colab\.).*\.(?:\w*_)?download(?:_\w+)?$|\.(?:get_file|get_(?:mutable_)?local_copy|untar_data|cached_path)$|^torch\.hub\.(?:load|list|help)$"
    r"|^torchtext\.vocab\.(?:GloVe|FastText|CharNGram)$|^sentence_transformers\.util\.http_get$|^sklearn\.datasets\.fetch_\w+$"
    r"|^(?:keras|torch_geometric|torchtext(?:\.\w+)?)\.datasets\.(?!\w+\.\w+\.)|\b[a-z]\w*\.load_data(?:set)?s?(?:_\w+)?$"
)
# Functions, classes and methods out of sight that give data: of settings alone they read it, and may fetch it before.
GIVES_DATA = re.compile(
    r"(?:\w+\.)+(?:(?:datasets?|data_?loaders?)\.(?!\w*(?:[Tt]ransform|[Ss]ampler|[Cc]ollat))\w+"
    r"|_*(?=[a-z])\w*(?:(?<!meta)data(?:sets?)?|corp(?:us|ora)|loaders?)(?:_(?!args|config|info|names?)\w+)?"
    r"|[A-Z]\w*(?:Dataset(?:Loader)?|Data(?:Module|Loader)|Corpus)"
    r"|(?=[A-Z])\w*(?:Data(?![a-z])|Dataset|DataModule|Corpus)\w*\(\)\.(?:load|prepare|download|set_?up|process|fetch)(?:_\w+)?"
    r"|[A-Z]\w*\(\)\.(?:prepare_data|setup))"
)
# Functions of which a result that is kept is data, too; arguments that name a file, which is read; and settings.
FETCHES = re.compile(r"_*(?:load|fetch|prepare|retrieve)[_ ]|[a-z].* .*,")
IS_FILE = re.compile(
    r"(?i)(?:(?<!data_)(?<!root_)path|file)(?:_?name)?s?$|^(?!.*://).*\.[a-z]\w{0,6}[\"')]+$"
)
SETTINGS = re.compile(
    rf"(?:{'|'.join(sys.stdlib_module_names)}|yaml|omegaconf|easydict|ml_collections|box)\.|.*\btransforms\b|torch\.(?:cuda|device)"
)
# Classes of data sets whose constructor downloads and processes files for the notebook's own class.
PREPARING_CLASSES = frozenset(
    "torch_geometric.data.InMemoryDataset torch_geometric.data.Dataset torch_geometric.data.OnDiskDataset "
    "dgl.data.DGLDataset dgl.data.DGLBuiltinDataset".split()
)
# What keeps the results of a function on disk.
CACHES = frozenset("joblib.Memory joblib.memory.Memory diskcache.Cache".split())
# Methods of a dataset whose result Datasets caches on disk.
CACHED_METHODS = frozenset({"map", "filter", "cast", "cast_column"})

# DDP and DataParallel, with which a notebook may wrap its model by hand.
DATA_PARALLEL = frozenset({"torch.nn.DataParallel", "torch.nn.parallel.DataParallel"})
PARALLEL_WRAPPERS = DATA_PARALLEL | {"torch.nn.parallel.DistributedDataParallel"}
# Functions that return their first argument, ready to run.
PASSING_FUNCTIONS = frozenset({"torch.compile", "functools.partial"})
ACCELERATORS = frozenset({"accelerate.Accelerator", "accelerate.accelerator.Accelerator"})
NOTEBOOK_LAUNCHERS = frozenset({"accelerate.notebook_launcher", "accelerate.launchers.notebook_launcher"})

# Names of models with experts, some of which a step may not use: "30B-A3B" has 3 of 30 billion active.
_EXPERTS = re.compile(
    r"moe|mixtral|\d+x\d+(\.\d+)?b|[-_]a\d+([._]\d+)?b|gpt-?oss|llama-?4|glm-?4[._][5-9]|deepseek-?v"
    r"|deepseek-?r1(?!.*distill)|kimi|minimax|dbrx|jamba",
    re.IGNORECASE,
)


def has_experts(name: str) -> bool:
    """Return whether a model's name says that it is a mixture of experts."""
    return _EXPERTS.search(name) is not None


_SIZE = re.compile(r"(?<![A-Za-z0-9.])[EeAa]?(\d+(?:[._]\d+)?)\s*([BbMm])(?![A-Za-z])")


def billions(name: str) -> float | None:
    """Return the billions of parameters in a model's name: 0.27 for "x-270M"; of several the largest."""
    sizes = ((float(number.replace("_", ".")), unit) for number, unit in _SIZE.findall(name))
    return max((size / 1000 if unit in "Mm" else size for size, unit in sizes), default=None)


# Make a generator of one's own: without a seed, each process gets another one.
GENERATORS = frozenset({"numpy.random.default_rng", "numpy.random.RandomState", "random.Random"})
# Functions that take a trainer and return it.
TRAINER_WRAPPERS = frozenset({"train_on_responses_only"})


def is_trainer_class(package: str, name: str) -> bool:
    """Return whether a class is a Trainer; ``PatchDPOTrainer`` of Unsloth is a function that changes one."""
    return package in TRAINER_PACKAGES and name.endswith("Trainer") and not name.startswith("Patch")


# Lightning's Trainer, and what it does with all ranks.
LIGHTNING_TRAINER = re.compile(r"(?:lightning(?:\.pytorch)?|pytorch_lightning)(?:\.trainer)*\.Trainer$")
LIGHTNING_METHODS = frozenset({"fit", "validate", "test", "predict"})
COLLECTIVE_METHODS = frozenset({"train", "evaluate", "predict", "hyperparameter_search"})
# What a model that is sharded over the ranks does with all of them; every rank has to make the call.
GATHERING_METHODS = frozenset({"generate", "save_pretrained"})
COLLECTIVE_FUNCTIONS = frozenset({"unsloth.unsloth_train", "unsloth.trainer.unsloth_train"})


def is_arguments_class(package: str, name: str) -> bool:
    """Return whether a class holds training arguments, as TRL's ``SFTConfig`` does and a model's config does not."""
    if name.endswith("TrainingArguments"):
        return package in TRAINER_PACKAGES
    return (
        package in ("trl", "unsloth")
        and name.endswith("Config")
        and name not in ("ModelConfig", "ScriptConfig")
    )


# Methods that write files or push: one rank is enough, and two would race.
WRITING_METHODS = frozenset(
    "save_pretrained save_pretrained_merged save_pretrained_gguf save_pretrained_torchao save_lora "
    "save_model save_state push_to_hub push_to_hub_merged push_to_hub_gguf save_to_disk to_csv to_json "
    "to_parquet to_excel to_pickle to_feather to_hdf tofile savefig write_text write_bytes create_repo "
    "upload_folder upload_file extractall write_csv write_parquet write_ndjson write_html write_image "
    "write_videofile to_json_file save_vocabulary".split()
)
# Methods of a Path that change files: they must happen once.
WRITING_PATH_METHODS = frozenset("mkdir touch unlink rmdir rename replace symlink_to hardlink_to".split())
DELETING_FUNCTIONS = frozenset("shutil.rmtree os.remove os.unlink os.rmdir".split())
# Functions that find no file, or one too many, where another rank was there before.
MOVING_FUNCTIONS = frozenset(
    "os.remove os.unlink os.rmdir os.removedirs os.rename os.renames os.replace os.mkdir os.makedirs shutil.move "
    "shutil.rmtree".split()
)
# Functions that write to an open file (json.dump) are not listed: opening the file is what counts.
WRITING_FUNCTIONS = frozenset(
    "torch.save joblib.dump shutil.copy shutil.copyfile shutil.copytree shutil.move shutil.rmtree "
    "shutil.make_archive shutil.unpack_archive scipy.io.wavfile.write scipy.io.savemat scipy.sparse.save_npz "
    "soundfile.write torchaudio.save numpy.save numpy.savez numpy.savez_compressed numpy.savetxt "
    "os.makedirs os.mkdir os.fsync os.remove os.unlink os.rename os.renames os.replace os.rmdir os.removedirs os.link "
    "os.symlink os.truncate os.ftruncate os.posix_fallocate "
    "cv2.imwrite imageio.imwrite imageio.v2.imwrite imageio.v3.imwrite imageio.imsave skimage.io.imsave "
    "tifffile.imwrite torchvision.utils.save_image torchvision.io.write_png torchvision.io.write_jpeg "
    "safetensors.torch.save_file safetensors.torch.save_model torch.jit.save torch.onnx.export "
    "matplotlib.pyplot.savefig matplotlib.pyplot.imsave urllib.request.urlretrieve wget.download gdown.download "
    "gdown.download_folder torch.hub.download_url_to_file git.Repo.clone_from imageio.mimsave imageio.mimwrite "
    "imageio.v2.mimsave pyarrow.parquet.write_table pyarrow.csv.write_csv nibabel.save SimpleITK.WriteImage "
    "faiss.write_index sentencepiece.SentencePieceTrainer.train sentencepiece.SentencePieceTrainer.Train "
    "youtokentome.BPE.train pandas.ExcelWriter".split()
)
# Buffers and temporary files, which only the process that made them uses.
OWN_BUFFERS = frozenset(
    "io.BytesIO io.StringIO BytesIO StringIO tempfile.NamedTemporaryFile tempfile.TemporaryFile "
    "tempfile.SpooledTemporaryFile tempfile.mkdtemp tempfile.mkstemp tempfile.TemporaryDirectory".split()
)

# Opens a file for a log and keeps it open; those of logging's handlers, the runtime opens on rank 0 alone.
LOG_SINK = "loguru.logger.add"
# Classes whose objects write TensorBoard's event files.
EVENT_WRITERS = frozenset(
    "torch.utils.tensorboard.SummaryWriter torch.utils.tensorboard.writer.SummaryWriter "
    "tensorboardX.SummaryWriter tensorboardX.writer.SummaryWriter".split()
)
# MLflow's functions that choose the store of its runs.
CHOOSES_MLFLOW_STORE = frozenset({"mlflow.set_tracking_uri", "mlflow.set_registry_uri"})
READS_MLFLOW_STORE = re.compile(
    r"mlflow\.(?:\w+\.)*(?:load_model|load_table|search_\w+|get_run|download_artifacts)"
)
# Functions that run a program, or send something: once is enough, and two could disturb each other.
RUNNING_FUNCTIONS = frozenset(
    "os.system os.popen os.spawnl os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe "
    "subprocess.run subprocess.call subprocess.check_call subprocess.check_output subprocess.Popen "
    "subprocess.getoutput subprocess.getstatusoutput asyncio.create_subprocess_shell asyncio.create_subprocess_exec "
    "requests.post requests.put requests.patch requests.delete httpx.post httpx.put httpx.patch httpx.delete "
    "dagshub.init dagshub.upload_files dagshub.create_repo "
    "kaggle.api.competition_submit kaggle.api.dataset_create_version kaggle.api.dataset_create_new".split()
)
# Train in several threads, so that no seed makes what they give equal twice: all ranks take rank 0's.
BY_THREADS = frozenset(
    f"gensim.models.{module}{name}"
    for name in ("Word2Vec", "Doc2Vec", "FastText")
    for module in ("", f"{name.lower()}.")
)
RUN_ONCE = RUNNING_FUNCTIONS | BY_THREADS
# Classes of sessions with a server, and functions that send what they are told.
SESSIONS = frozenset(
    "requests.request httpx.request requests.Session requests.session requests.sessions.Session httpx.Client "
    "smtplib.SMTP smtplib.SMTP_SSL google.cloud.storage.Client pymongo.MongoClient boto3.client boto3.resource "
    "boto3.Session google.cloud.bigquery.Client slack_sdk.WebClient slack_sdk.web.WebClient "
    "openai.OpenAI openai.AzureOpenAI openai.chat.completions.create openai.ChatCompletion.create anthropic.Anthropic "
    "google.genai.Client groq.Groq mistralai.Mistral".split()
)
# Packages of functions and classes that ask servers.
ASKS_SERVER = re.compile(r"(?:requests|httpx|aiohttp|urllib3|urllib\.request)\.")
# Their methods that send something.
SENDING_METHODS = frozenset(
    "post put patch delete sendmail send_message upload_from_filename upload_from_file upload_from_string upload_file "
    "upload_fileobj put_object insert_one insert_many update_one update_many replace_one delete_one delete_many "
    "bulk_write insert_rows_json chat_postMessage files_upload files_upload_v2 create complete generate_content".split()
)
# Clients of databases, queues and servers, by what they come from, and what changes something there.
CLIENTS = re.compile(
    r"(?:psycopg2?|pymysql|MySQLdb|mysql|mariadb|pyodbc|pymssql|oracledb|snowflake|sqlalchemy|sqlmodel|neo4j|redis"
    r"|elasticsearch|influxdb_client|kafka|confluent_kafka|pika)\."
)
CHANGES_SERVER = frozenset(
    "commit executemany to_sql execute_values execute_write set setex hset incr lpush rpush xadd publish "
    "basic_publish produce".split()
)
# Functions and methods of the Hub's client that change something there.
CHANGES_HUB = re.compile(
    r"(?:upload|create|delete|push|move|update|add|duplicate|merge|request|super_squash)_"
)
# Functions among these, and among those that write, whose result can be sent to other ranks.
PLAIN_RESULTS = (
    {n for n in RUNNING_FUNCTIONS if not re.search("[Pp]open|_subprocess_", n)}
    | BY_THREADS
    | frozenset(
        "shutil.copy shutil.copyfile shutil.copytree shutil.move shutil.make_archive urllib.request.urlretrieve "
        "wget.download gdown.download gdown.download_folder".split()
    )
)
# What runs functions elsewhere than where the notebook calls it, and where that is; of packages, all that they make.
WORKERS = {
    "ipywidgets gradio": "widget",
    "threading.Thread threading.Timer asyncio.to_thread multiprocessing.dummy.Pool multiprocessing.pool.ThreadPool "
    "concurrent.futures.ThreadPoolExecutor": "thread",
    "multiprocessing.Pool concurrent.futures.ProcessPoolExecutor joblib.Parallel": "process",
}
WORKERS = {name: where for names, where in WORKERS.items() for name in names.split()}
# Functions that count the GPUs that a process sees: in a rank one.
COUNTS_GPUS = re.compile(r"(?i)(?:gpu|device)s?_?counts?$|n(?:um)?_(?:gpu|device)s?$")
# What torchrun tells each rank through its environment; the script takes it out.
LAUNCH_VARIABLES = frozenset("RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT".split())
# Functions of torch.distributed that differ between ranks, or tell how many there are.
RANK_FUNCTIONS = frozenset("get_rank get_global_rank get_node_local_rank get_world_size".split())
# What only rank 0 passes; the first of these are attributes and methods of objects of Transformers' and Accelerate's.
TESTS_OF_LIBRARIES = frozenset(
    "is_main_process is_local_main_process is_world_process_zero is_local_process_zero is_global_zero".split()
)
RANK_ZERO_TESTS = TESTS_OF_LIBRARIES | frozenset(
    "is_main is_master is_main_rank is_master_process master_process main_process "
    "is_rank_zero is_rank_0 rank_zero".split()
)
# Functions that end the process.
ENDING_FUNCTIONS = frozenset({"sys.exit", "exit", "quit", "os._exit", "os.abort"})
# Programs that only print information, and options with which any program does: every rank may run them.
ASKING_PROGRAMS = frozenset(
    "nvidia-smi which whereis uname hostname whoami nproc lscpu lsb_release df free pwd ls cat echo".split()
)
# Functions and methods that print their arguments.
SHOWING_FUNCTIONS = frozenset(
    "print display IPython.display.display pprint.pprint pprint.pp rich.print".split()
)
SHOWING_METHODS = frozenset("debug info warning error critical".split())
# Methods that put what they are given into a list, a log, a file or a bar of progress.
RECORDING_METHODS = frozenset(
    "append appendleft extend write writelines writerow writerows log set_description set_description_str "
    "set_postfix set_postfix_str".split()
)
# Methods that change nothing for long of the object on which they are called; "" is a function.
KEEPING_METHODS = frozenset({"", *"close flush save add_scalar train eval".split()}).union(
    WRITING_METHODS, WRITING_PATH_METHODS, SHOWING_METHODS, RECORDING_METHODS
)
# Functions that store their first argument, or measure it.
RECORDING_FUNCTIONS = frozenset(
    "len json.dump json.dumps pickle.dump yaml.dump yaml.safe_dump torch.save joblib.dump".split()
)
# Searches for settings, which draw the next ones, and functions that seed generators.
SEARCHES = frozenset(
    "optuna.create_study optuna.study.create_study ray.tune.run ray.tune.Tuner hyperopt.fmin wandb.agent".split()
)
SEEDING = frozenset(
    "random.seed numpy.random.seed torch.manual_seed torch.cuda.manual_seed torch.cuda.manual_seed_all "
    "transformers.set_seed accelerate.utils.set_seed lightning.seed_everything lightning.pytorch.seed_everything "
    "pytorch_lightning.seed_everything".split()
)
# Methods of an Accelerator that one rank may call alone.
CALLED_ALONE = frozenset(
    "print log init_trackers get_tracker end_training unwrap_model get_state_dict register_for_checkpointing "
    "free_memory clear".split()
)
# Functions that return None.
GIVE_NOTHING = (RECORDING_FUNCTIONS - {"len", "json.dumps", "joblib.dump"}) | frozenset(
    "shutil.rmtree time.sleep matplotlib.pyplot.close random.shuffle numpy.random.shuffle".split()
)
# Make settings of keyword arguments.
SETTINGS_MAKERS = frozenset(
    "dict types.SimpleNamespace argparse.Namespace easydict.EasyDict ml_collections.ConfigDict box.Box".split()
)
# Functions whose first argument is what they write, or read, and not the path that they write to.
VALUE_FIRST = frozenset(
    "torch.save joblib.dump safetensors.torch.save_file torch.jit.save pyarrow.parquet.write_table "
    "pyarrow.csv.write_csv nibabel.save SimpleITK.WriteImage faiss.write_index".split()
)
SOURCE_FIRST = frozenset(
    "shutil.copy shutil.copyfile shutil.copytree shutil.move shutil.unpack_archive os.rename os.replace "
    "os.link os.symlink torchvision.utils.save_image safetensors.torch.save_model "
    "urllib.request.urlretrieve wget.download gdown.download torch.hub.download_url_to_file "
    "git.Repo.clone_from".split()
)
# Functions and methods that make one text, or one path, of others.
TEXT_FUNCTIONS = frozenset("str repr format json.dumps os.path.join os.path.basename pathlib.Path".split())
TEXT_METHODS = frozenset(
    "strftime isoformat hex format replace lower upper join timestamp split strip".split()
)
# Methods that write only if they are given a path.
WRITING_WITH_PATH = frozenset({"to_csv", "to_json"})
# Tests whose result changes when another rank has written a file.
FILE_TESTS = frozenset("os.path.exists os.path.isfile os.path.isdir os.listdir glob.glob os.access".split())
FILE_TEST_METHODS = frozenset("exists is_file is_dir glob iterdir".split())
# Functions that take a path, and neither read nor make what is in a file.
OF_PATHS_ALONE = DELETING_FUNCTIONS | FILE_TESTS | {"print", "os.path.join", "os.makedirs", "os.mkdir"}

# Methods that change the list, dict or set on which they are called.
CHANGING_METHODS = frozenset(
    "append extend insert remove pop clear update setdefault add discard sort reverse "
    "appendleft extendleft popleft popitem train_from_iterator".split()
)
# Functions that change their first argument, a list or an array.
CHANGING_FUNCTIONS = frozenset(
    "heapq.heappush heapq.heappop heapq.heapreplace heapq.heappushpop heapq.heapify bisect.insort "
    "bisect.insort_left bisect.insort_right random.shuffle numpy.random.shuffle "
    "numpy.copyto numpy.fill_diagonal numpy.place numpy.put numpy.putmask".split()
)

# What comes out otherwise in each process: text, and the vocabulary of a tokenizer that is trained.
GENERATING_METHODS = frozenset(
    "generate fast_generate unsloth_generate train_from_iterator train_new_from_iterator".split()
)

# Calls before or after which a rule may insert code: each is put on a line of its own.
MOVED_CALLS = (
    COLLECTIVE_METHODS
    | WRITING_METHODS
    | GENERATING_METHODS
    | MODEL_WRAPPERS
    | {name.rpartition(".")[2] for name in WRITING_FUNCTIONS | RUNNING_FUNCTIONS}
    | {"from_pretrained", "unsloth_train"}
)

# Calls without a result, or whose result is not shown below a cell.
SILENT_CALLS = frozenset(
    "train print display show pprint pp get_ipython print_trainable_parameters evaluate login notebook_login "
    "empty_cache collect seed manual_seed set_seed clear_output makedirs mkdir append extend insert update "
    "setdefault add filterwarnings save savefig to_json_file notebook_launcher close clear tight_layout "
    "set_transform set_format info backward zero_grad".split()
)
# Magics that only concern the notebook's display.
DISPLAY_MAGICS = frozenset(
    "matplotlib load_ext reload_ext unload_ext autoreload config precision pinfo pinfo2 psearch who "
    "whos who_ls xmode colors history hist doctest_mode tensorboard lsmagic magic quickref pdb debug "
    "automagic run_ddp autosave reset_selective memit".split()
)

# Each process reads its own.
CLOCKS = frozenset(
    "time.time time.perf_counter time.monotonic time.time_ns time.perf_counter_ns time.monotonic_ns "
    "timeit.default_timer datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today "
    "pandas.Timestamp.now time.localtime time.gmtime".split()
)
# What the system draws for each process, or names it by.
SYSTEM_NUMBERS = frozenset(
    "os.getpid threading.get_ident threading.get_native_id time.strftime time.ctime uuid.uuid1 uuid.uuid4 "
    "secrets.token_hex secrets.token_urlsafe secrets.token_bytes secrets.choice secrets.randbelow secrets.randbits "
    "os.urandom".split()
)
# Packages that keep a run's figures; W&B's, MLflow's and TensorBoard's have rules of their own.
TRACKERS = frozenset("comet_ml neptune clearml aim swanlab trackio visdom".split())
# Their functions and methods that only read, of a run that is named, or of what such a one gives.
READS_RUN = re.compile(
    r"(?:get|load|fetch|query|list)(?:_(?!\w*(?:run|experiment|current|global|logger)\b)\w+)?|API|APIExperiment"
)
# Methods and attributes of their runs whose values rank 0 can send.
SENT_OF_RUN = re.compile(
    r"(?:get_)?(?:\w+_)?(?:id|key|hash|url|name|dir|path|parameters(?:_as_dict)?)|fetch\w*|connect(?:_configuration)?"
)
# Keywords that tell a function where to write.
OUTPUTS = frozenset(
    "output output_dir output_path output_file out_dir out_path outdir outfile save_path save_dir dest dest_dir "
    "destination dst target_dir".split()
)
# Functions and methods of libraries whose names say that they save.
SAVES = re.compile(
    r".*\.(?:save_(?:checkpoints?|ckpt|recovery|weights|snapshot|images?|video|results?|plots?|figures?)"
    r"|write_(?:to_)?(?:dataset|deltalake|feather))"
)
# Functions of libraries whose names say that they move or unpack files, or install something.
REARRANGES = re.compile(r".*\.(?:(?:reorg|unzip|unpack|untar|extract)(?:anize)?(?:_\w+)?|install_\w+)")
# Packages whose functions compute: what they give is the same wherever they are given the same.
COMPUTING_PACKAGES = frozenset(
    "accelerate bisect bitsandbytes collections copy dataclasses datasets einops evaluate fractions functools heapq "
    "itertools json keras logging math matplotlib numpy operator pandas peft PIL random re scipy seaborn "
    "sentence_transformers sklearn statistics string textwrap tokenizers torch torchaudio torchmetrics torchvision "
    "tqdm transformers trl typing unsloth".split()
)
GIVE_NO_DATA = COMPUTING_PACKAGES.union(
    TRACKERS, sys.stdlib_module_names, "google mlflow spacy wandb".split()
)
# Of other packages, and of these, by how names begin: what is the same on all ranks, and what is of one machine or GPU.
SAME_EVERYWHERE = tuple(
    "argparse. os.environ os.getenv os.path.join os.path.basename os.path.dirname".split()
)
OF_THIS_MACHINE = tuple(f"torch.cuda.{name}" for name in "mem max_mem util temp power".split())
