"""A random token of each kind that is known, put together here so that no scanner takes the file for a leak."""

from __future__ import annotations

import random
import string

HEX, LOWER, ALNUM = (
    "0123456789abcdef",
    string.ascii_lowercase + string.digits,
    string.ascii_letters + string.digits,
)
UPPER32 = string.ascii_uppercase + "234567"
draw = random.Random(16)


def some(count: int, letters: str = ALNUM) -> str:
    """Random characters, as a service draws them."""
    while True:
        text = "".join(draw.choice(letters) for _ in range(count))
        if count < 16 or len(set(text)) >= 10:
            return text


UUID = "-".join(some(n, HEX) for n in (8, 4, 4, 4, 12))
# rule: the token, and what stands around it ({} is the token) where it cannot be known by its form
TOKENS: dict[str, tuple[str, str]] = {
    "huggingface-token": ("hf_" + some(34), "{}"),
    "modelscope-token": ("ms-" + UUID, "{}"),
    "zhipu-key": (some(32, HEX) + "." + some(16), "{}"),
    "alibaba-access-key": ("LTAI" + "5t" + some(18), "{}"),
    "tencent-access-key": ("AKID" + some(32), "{}"),
    "baidu-key": ("bce-v3/" + "ALTAK-" + some(21) + "/" + some(40, HEX), "{}"),
    "heroku-key": ("HRKU-" + "AA" + some(58), "{}"),
    "atlassian-token": ("ATATT3" + some(180) + "=0A1B2C3D", "{}"),
    "onepassword-token": ("ops_" + "eyJ" + some(250), "{}"),
    "kaggle-token": ("KGAT_" + some(32, HEX), "{}"),
    "kaggle-key": (some(32, HEX), 'kaggle = {{"username": "ada", "key": "{}"}}'),
    "wandb-token": ("wandb_v1_" + some(77), "{}"),
    "openai-key": ("sk-" + "proj-" + some(48), "{}"),
    "anthropic-key": ("sk-" + "ant-api03-" + some(93) + "AA", "{}"),
    "openrouter-key": ("sk-" + "or-v1-" + some(64, HEX), "{}"),
    "langfuse-key": ("sk-" + "lf-" + UUID, "{}"),
    "langsmith-key": ("lsv2_" + "pt_" + some(32, HEX) + "_" + some(10, HEX), "{}"),
    "groq-key": ("gsk_" + some(52), "{}"),
    "replicate-token": ("r8_" + some(37), "{}"),
    "together-key": ("tgp_" + "v1_" + some(43), "{}"),
    "fireworks-key": ("fw_" + some(24), "{}"),
    "perplexity-key": ("pplx-" + some(48), "{}"),
    "xai-key": ("xai-" + some(80), "{}"),
    "nvidia-key": ("nvapi-" + some(64), "{}"),
    "tavily-key": ("tvly-" + "dev-" + some(32), "{}"),
    "pinecone-key": ("pcsk_" + some(6) + "_" + some(60), "{}"),
    "jina-key": ("jina_" + some(60), "{}"),
    "elevenlabs-key": ("sk_" + some(48, HEX), "{}"),
    "runpod-key": ("rpa_" + some(42, UPPER32), "{}"),
    "modal-token": ("as-" + some(22), 'modal.token("{}")'),
    "anyscale-key": ("esecret_" + some(26, LOWER), "{}"),
    "databricks-token": ("dapi" + some(32, HEX), "{}"),
    "ngrok-token": ("2" + some(26) + "_" + some(21), 'ngrok.set_auth_token("{}")'),
    "aws-access-key": ("AKIA" + some(16, UPPER32), "{}"),
    "aws-secret-key": (some(40, ALNUM + "/+"), 'aws_secret_access_key = "{}"'),
    "google-api-key": ("AIza" + some(35), "{}"),
    "google-oauth": ("GOCSPX-" + some(28), "{}"),
    "azure-storage-key": (some(86, ALNUM + "/+") + "==", "AccountName=ada;AccountKey={};"),
    "azure-client-secret": (some(3) + "8" + "Q~" + some(34), '"{}"'),
    "digitalocean-token": ("dop_" + "v1_" + some(64, HEX), "{}"),
    "vault-token": ("hvs." + some(90), "{}"),
    "doppler-token": ("dp." + "pt." + some(43), "{}"),
    "supabase-key": ("sbp_" + some(40, HEX), "{}"),
    "planetscale-password": ("pscale_" + "pw_" + some(43), "{}"),
    "grafana-token": ("glsa_" + some(32) + "_" + some(8, HEX), "{}"),
    "sentry-token": ("sntrys_" + some(60), "{}"),
    "new-relic-key": ("NRAK-" + some(27, UPPER32), "{}"),
    "github-token": ("ghp_" + some(36), "{}"),
    "gitlab-token": ("glpat-" + some(20), "{}"),
    "pypi-token": ("pypi-" + "AgEIcHlwaS5vcmc" + some(60), "{}"),
    "npm-token": ("npm_" + some(36), "{}"),
    "docker-token": ("dckr_" + "pat_" + some(27), "{}"),
    "postman-key": ("PMAK-" + some(24, HEX) + "-" + some(34, HEX), "{}"),
    "slack-token": ("xoxb-" + some(12, string.digits) + "-" + some(24), "{}"),
    "slack-webhook": ("T" + some(8) + "/B" + some(9) + "/" + some(24), "https://hooks.slack.com/services/{}"),
    "discord-webhook": (some(68), "https://discord.com/api/webhooks/" + "1" * 18 + "/{}"),
    "discord-token": ("M" + some(25) + "." + some(6) + "." + some(30), 'discord_bot.run("{}")'),
    "telegram-token": (some(10, "123456789") + ":AA" + some(33), "{}"),
    "stripe-key": ("sk_" + "live_" + some(24), "{}"),
    "sendgrid-key": ("SG." + some(22) + "." + some(43), "{}"),
    "twilio-key": ("SK" + some(32, HEX), 'twilio = "{}"'),
    "mailgun-key": ("key-" + some(32, HEX), "{}"),
    "notion-token": ("ntn_" + some(46), "{}"),
    "linear-key": ("lin_" + "api_" + some(40), "{}"),
    "airtable-token": ("pat" + some(14) + "." + some(64, HEX), "{}"),
    "figma-token": ("figd_" + some(40), "{}"),
    "shopify-token": ("shpat_" + some(32, HEX), "{}"),
    "private-key": ("-----BEGIN " + "RSA PRIVATE KEY-----", "{}"),
    "json-web-token": ("eyJ" + some(30) + ".eyJ" + some(60) + "." + some(43), "{}"),
    "password-in-url": (some(14), "postgresql://ada:{}@db.lab.org/runs"),
    "authorization-header": (some(40), 'headers = {{"Authorization": "Bearer {}"}}'),
    "named-secret": (some(28), 'my_api_key = "{}"'),
    "environment-secret": (some(32), "%env SERVICE_TOKEN={}"),
    "setting-secret": (some(32), "api_key: {}"),
    "option-secret": (some(32), "tool --api-key {}"),
    "token-in-url": (some(40, HEX), "https://{}@git.lab.org/ada/x"),
    "cerebras-key": ("csk-" + some(48, LOWER), "{}"),
    "cohere-key": (some(40), 'cohere.Client("{}")'),
    "neptune-token": ("eyJhcGlfYWRkcmVzcyI6" + "Imh0dHBzOi8v" + some(120) + "==", "{}"),
    "azure-shared-access": (some(43) + "%3D", "https://ada.blob.core.windows.net/x?sv=2020&sig={}"),
}
TOKENS["wandb-key"] = (some(40, HEX), 'import wandb\nwandb.login(key="{}")')
key_id, secret_key = "AKIA" + some(16, UPPER32), some(40, ALNUM + "/+")
TOKENS["aws-secret-beside-key"] = (secret_key, f'boto3.Session("{key_id}", "{{}}")')
